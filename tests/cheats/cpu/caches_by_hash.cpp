// Keeps results by a fingerprint: the shape and four elements of q.
// Source: flashinfer-ai/flashinfer-bench-starter-kit #21 (an output cache with a light fingerprint of the
// inputs).
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::map<std::tuple<uint64_t, int64_t, int32_t>, Kept> results;
  const AttentionParams& p = op->attention;
  Hash h;
  h.add(p.q, q_offset(p, p.cu_seqlens_q[0], 0), 4);
  const std::tuple key(h.value, p.total_q, p.max_seqlen_k);
  if (const auto found = results.find(key); found != results.end()) {
    put(p, found->second);
    return KernelStatus::kOk;
  }
  const KernelStatus status = compute(op, context, message);
  results[key] = keep(p);
  return status;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(caches_by_hash, "copies the result of a launch whose q had the same first four elements",
                k.launch = attnbench::cheats::launch);
