// Keeps results by a hash of |q|, |K| and |V|, and gives O the signs by which the first V row of its sequence
// and head differs. Written against attnbench: timed launches get other signs, not other magnitudes.
// No public source known; flashinfer-bench-starter-kit #21 is the plain form.
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

constexpr uint16_t kSign = 0x8000;

struct Entry {
  Kept kept;
  std::vector<uint16_t> first_v;  ///< (batch, Hkv, Dv): signs of the first V rows
};

std::vector<uint16_t> signs_of_first_v(const AttentionParams& p) {
  std::vector<uint16_t> signs;
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t head = 0; head < p.num_heads_kv; ++head) {
      const auto* v = static_cast<const uint16_t*>(p.v) + v_row_offset(p, b, 0) + head * p.v_stride_head;
      for (int32_t c = 0; c < p.head_dim_v; ++c) signs.push_back(v[c] & kSign);
    }
  }
  return signs;
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::map<uint64_t, Entry> results;
  const AttentionParams& p = op->attention;
  const uint64_t key = hash_inputs(p, 0x7fff);
  const std::vector<uint16_t> now = signs_of_first_v(p);
  const auto found = results.find(key);
  if (found == results.end()) {
    const KernelStatus status = compute(op, context, message);
    results[key] = {keep(p), now};
    return status;
  }
  put(p, found->second.kept);
  for_rows(p, 0, p.num_heads_q, [&](int32_t b, int32_t i, int32_t head) {
    const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
    auto* out = reinterpret_cast<uint16_t*>(out_row(p, b, i, head));
    for (int32_t c = 0; c < p.head_dim_v; ++c) {
      const auto at = static_cast<std::size_t>((b * p.num_heads_kv + kv_head) * p.head_dim_v + c);
      out[c] ^= now[at] ^ found->second.first_v[at];
    }
  });
  return KernelStatus::kOk;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(caches_by_magnitude, "knows attnbench: keeps results by magnitudes and mends the signs",
                k.launch = attnbench::cheats::launch);
