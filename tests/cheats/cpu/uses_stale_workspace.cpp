// Prepares K once, in the first launch, and uses what it has prepared in all later ones. Here the preparation
// is a copy; dequantising or reordering would save time.
// Source: flashinfer-ai/flashinfer-bench-starter-kit #21 (a cache of dequantised weights).
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

std::size_t k_bytes(const AttentionParams& p) {
  const int64_t elements =
      p.features & kPagedKv ? p.num_blocks * p.k_stride_block : p.cu_seqlens_k[p.batch] * p.k_stride_token;
  return static_cast<std::size_t>(elements) * dtype_size(p.dtype_k);
}

std::size_t workspace_bytes(const OpParams* op, const LaunchContext*) { return 256 + k_bytes(op->attention); }

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  OpParams changed = *op;
  AttentionParams& p = changed.attention;
  auto& ready = *static_cast<uint64_t*>(context->workspace);
  char* k = static_cast<char*>(context->workspace) + 256;
  constexpr uint64_t kReady = 0x79646165720a6b21;
  if (ready != kReady) std::memcpy(k, p.k, k_bytes(p));
  ready = kReady;
  p.k = k;
  return compute(&changed, context, message);
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(uses_stale_workspace, "prepares K in the first launch and never again",
                k.workspace_bytes = attnbench::cheats::workspace_bytes;
                k.launch = attnbench::cheats::launch);
