// The keys that each query of a case sees, by all its masks. visible_keys.h has the interval that the causal mask,
// windows and chunks leave; a custom mask or lists of keys leave gaps in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "harness/cases/mask_bits.h"
#include "harness/cases/visible_keys.h"

namespace attnbench {

class SeenKeys {
 public:
  /// `seed`: of the masks that are drawn.
  SeenKeys(const CaseParams& p, uint64_t seed);
  explicit SeenKeys(const Case& c) : SeenKeys(c.params, c.seed) {}

  /// The interval of query i of sequence b, gaps included.
  KeyRange range(std::size_t b, int64_t i) const { return visible_keys(mask_, seqs_[b].q, seqs_[b].k, i); }
  /// Whether query i of sequence b sees a key with the heads of a KV head.
  bool sees(std::size_t b, int64_t i, int32_t kv_head, int64_t key) const {
    return range(b, i).contains(key) && in_no_gap(b, i, kv_head, key);
  }
  /// The same for a key within range(b, i).
  bool in_no_gap(std::size_t b, int64_t i, int32_t kv_head, int64_t key) const {
    if (heads_ > 0) {
      const std::vector<int32_t>& keys = listed(b, i, kv_head);
      return std::binary_search(keys.begin(), keys.end(), static_cast<int32_t>(key));
    }
    return bits_.empty() || bits_[b].sees(i, key);
  }
  /// Number of keys that the query sees.
  int64_t count(std::size_t b, int64_t i, int32_t kv_head) const;
  /// The bits of a custom mask; not for cases without one.
  const MaskBits& bits(std::size_t b) const { return bits_[b]; }
  /// The keys that the list of a query and KV head names, in order; not for cases without lists.
  const std::vector<int32_t>& listed(std::size_t b, int64_t i, int32_t kv_head) const {
    return lists_[static_cast<std::size_t>((first_query_[b] + i) * heads_ + kv_head)];
  }

 private:
  std::vector<SeqLen> seqs_;
  Mask mask_;
  std::vector<MaskBits> bits_;               ///< of each sequence; empty: no custom mask
  int64_t heads_ = 0;                        ///< KV heads that have lists; 0: no lists
  std::vector<int64_t> first_query_;         ///< of each sequence, in the batch
  std::vector<std::vector<int32_t>> lists_;  ///< (total_q, heads)
};

}  // namespace attnbench
