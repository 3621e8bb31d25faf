// The tensors of masks with gaps.
#include <gtest/gtest.h>

#include "harness/cases/key_lists.h"
#include "harness/cases/mask_bits.h"
#include "harness/ops/attention/tensors_custom_mask.h"
#include "harness/ops/attention/tensors_key_lists.h"
#include "harness/tensors/workload.h"

namespace attnbench {
namespace {

Case masked_case(const std::string& yaml, uint64_t seed = 1) {
  return expand(parse_inline_case(yaml, {}, seed)).cases.at(0);
}

TEST(WorkloadMasks, BitsArePackedFromTheLowestAndSequencesBeginAByte) {
  const Case c = masked_case("{kv: packed, custom_mask: random, batch: q3s7_q2s5_q0s4_q2s9}", 4);
  LayoutVariant variant;
  variant.seq_ids = {2, 1, 0, 5};
  variant.lead_rows = 3;
  const PackedMask mask = packed_mask_of(c, variant);
  EXPECT_EQ(mask.indptr, (std::vector<int32_t>{3, 6, 8, 8, 11}));
  for (std::size_t b = 0; b < c.params.seqs.size(); ++b) {
    const SeqLen s = c.params.seqs[b];
    const MaskBits bits(CustomMask::kRandom, 4, variant.seq_ids[b], s);
    for (int n = 0; n < (s.q * s.k + 7) / 8 * 8; ++n) {
      const int byte = mask.bytes[static_cast<std::size_t>(mask.indptr[b] + n / 8)];
      const bool expected = n >= s.q * s.k || bits.sees(n / s.k, n % s.k);
      EXPECT_EQ(byte >> (n % 8) & 1, expected) << b << " " << n;
    }
  }
  EXPECT_TRUE(packed_mask_of(masked_case("{kv: packed, batch: q3s7}")).bytes.empty());
}

TEST(WorkloadMasks, EntriesNameRowsAndOthersAreJunk) {
  for (const char* kv : {"kv: packed", "kv: paged, block_size: 4"}) {
    const Case c = masked_case(
        std::string("{") + kv +
            ", heads: 4/2, head_dim: 8, mask: causal, topk: 6, topk_length: drawn, batch: q3s17_q2s5_q0s4}",
        4);
    LayoutVariant variant;
    variant.seq_ids = {2, 0, 1};
    variant.lead_rows = 3;
    variant.padded_strides = true;
    const WorkloadPlan plan = plan_workload(c, variant);
    const KeyListTensors t = key_list_tensors(c, plan, variant);
    const TokenStrides strides = key_list_strides(c.params, true);
    std::vector<bool> listed(plan.kv_owners.size(), false);
    for (std::size_t b = 0; b < 3; ++b) {
      const SeqLen s = c.params.seqs[b];
      for (int i = 0; i < s.q; ++i) {
        const int64_t token = plan.cu_seqlens_q[b] + i;
        for (int h = 0; h < 2; ++h) {
          const auto list = key_list_of(c.params, {4, variant.seq_ids[b], i}, h, {0, s.k - s.q + i + 1});
          EXPECT_EQ(t.lengths[static_cast<std::size_t>(token)], static_cast<int>(list.size()));
          for (std::size_t n = 0; n < 6; ++n) {
            const int32_t entry =
                t.indices[static_cast<std::size_t>(token * strides.token + h * strides.head) + n];
            if (n >= list.size()) {
              EXPECT_TRUE(entry == kJunkEntries[0] || entry == kJunkEntries[1]);
            } else if (list[n] < 0) {
              EXPECT_EQ(entry, -1);
            } else {
              const RowOwner owner = plan.kv_owners.at(static_cast<std::size_t>(entry));
              EXPECT_EQ(owner.seq, variant.seq_ids[b]);
              EXPECT_EQ(owner.pos, list[n]);
              listed[static_cast<std::size_t>(entry)] = true;
            }
          }
        }
      }
    }
    for (std::size_t r = 0; r < listed.size(); ++r) EXPECT_EQ(plan.kv_owners[r].seq >= 0, listed[r]) << r;
  }
}

}  // namespace
}  // namespace attnbench
