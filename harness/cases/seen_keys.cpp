#include "harness/cases/seen_keys.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "harness/cases/key_lists.h"

namespace attnbench {

SeenKeys::SeenKeys(const CaseParams& p, uint64_t seed) : seqs_(p.seqs), mask_(mask_of(p)) {
  for (std::size_t b = 0; p.custom_mask != CustomMask::kNone && b < seqs_.size(); ++b)
    bits_.emplace_back(p.custom_mask, seed, static_cast<int32_t>(b), seqs_[b]);
  if (p.topk == 0) return;
  heads_ = p.num_heads_kv;
  int64_t first = 0;
  for (std::size_t b = 0; b < seqs_.size(); ++b) {
    first_query_.push_back(first);
    first += seqs_[b].q;
    for (int32_t i = 0; i < seqs_[b].q; ++i) {
      for (int32_t h = 0; h < p.num_heads_kv; ++h) {
        std::vector<int32_t> keys = key_list_of(p, {seed, static_cast<int32_t>(b), i}, h, range(b, i));
        keys.erase(std::remove(keys.begin(), keys.end(), -1), keys.end());
        std::ranges::sort(keys);
        lists_.push_back(std::move(keys));
      }
    }
  }
}

int64_t SeenKeys::count(std::size_t b, int64_t i, int32_t kv_head) const {
  if (heads_ > 0) return static_cast<int64_t>(listed(b, i, kv_head).size());
  const KeyRange keys = range(b, i);
  if (bits_.empty() || keys.empty()) return keys.size();
  const uint64_t* row = bits_[b].row(i);
  int64_t n = 0;
  for (int64_t w = keys.begin / 64; w * 64 < keys.end; ++w) {
    uint64_t word = row[w];
    if (w * 64 < keys.begin) word &= ~uint64_t{0} << (keys.begin % 64);
    if ((w + 1) * 64 > keys.end) word &= (uint64_t{1} << (keys.end % 64)) - 1;
    n += std::popcount(word);
  }
  return n;
}

}  // namespace attnbench
