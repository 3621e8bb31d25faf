// Keeps a result behind the last row of V, where nobody looks: in unused rows of the last block or behind the
// packed tensor. The place tells of itself whether it holds a result. Later launches copy it instead of
// computing those rows.
// Source: ScalingIntelligence/KernelBench #82 (kernels that change their inputs).
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

constexpr uint64_t kMark = 0x6b6570742d6f7574;

/// Room behind the last V row of the last sequence: for the mark, and O and LSE of its last row.
char* behind_v(const AttentionParams& p) {
  const int32_t b = p.batch - 1, k_len = seq_range(p, b).k_len;
  const int64_t last = v_row_offset(p, b, k_len - 1) + (p.num_heads_kv - 1) * p.v_stride_head;
  return static_cast<char*>(const_cast<void*>(p.v)) + static_cast<std::size_t>(last + p.head_dim_v) * 2;
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  const int32_t b = p.batch - 1, i = seq_range(p, b).q_len - 1, head = p.num_heads_q - 1;
  char* place = behind_v(p);
  uint64_t mark;
  std::memcpy(&mark, place, sizeof mark);
  if (mark == kMark) {
    for_rows(p, 0, p.num_heads_q, [&](int32_t of, int32_t at, int32_t h) {
      if (of != b || at != i || h != head) example::attend(p, of, at, h);
    });
    std::memcpy(out_row(p, b, i, head), place + 16, row_bytes(p));
    std::memcpy(&lse_row(p, b, i, head), place + 8, sizeof(float));
    return KernelStatus::kOk;
  }
  const KernelStatus status = compute(op, context, message);
  std::memcpy(place, &kMark, sizeof kMark);
  std::memcpy(place + 8, &lse_row(p, b, i, head), sizeof(float));
  std::memcpy(place + 16, out_row(p, b, i, head), row_bytes(p));
  return status;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(stores_in_inputs, "keeps results behind the last row of V and copies them",
                k.launch = attnbench::cheats::launch);
