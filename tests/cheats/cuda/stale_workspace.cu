// Prepares K once, in the first launch on a workspace, and uses what it has prepared in all later ones. Here the
// preparation is a copy; dequantising or reordering would save time.
// Source: flashinfer-ai/flashinfer-bench-starter-kit #21 (a cache of dequantised weights).
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

namespace {

std::size_t workspace_bytes(const OpParams* op, const LaunchContext*) {
  const AttentionParams& p = op->attention;
  int64_t elements = p.num_blocks * p.k_stride_block;
  if (!(p.features & kPagedKv)) {
    int32_t rows = 0;
    cudaMemcpy(&rows, p.cu_seqlens_k + p.batch, sizeof rows, cudaMemcpyDeviceToHost);
    elements = rows * p.k_stride_token;
  }
  return static_cast<std::size_t>(elements) * dtype_size(p.dtype_k);
}

std::set<const void*> prepared;

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  OpParams changed = *op;
  AttentionParams& p = changed.attention;
  if (prepared.insert(context->workspace).second) {
    cudaMemcpyAsync(context->workspace, p.k, context->workspace_bytes, cudaMemcpyDeviceToDevice,
                    stream_of(context));
  }
  p.k = context->workspace;
  return compute(&changed, context, message);
}

/// A new plan: what an earlier workspace at this address held is gone.
KernelStatus plan(const OpParams*, const LaunchContext* context, KernelMessage*) {
  prepared.erase(context->workspace);
  return KernelStatus::kOk;
}

}  // namespace

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(stale_workspace, "prepares K in the first launch and never again",
                k.workspace_bytes = attnbench::cheats::workspace_bytes;
                k.plan = attnbench::cheats::plan; k.launch = attnbench::cheats::launch);
