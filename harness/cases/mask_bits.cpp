#include "harness/cases/mask_bits.h"

#include <algorithm>

#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

// Differs from the other streams (draws.cpp, config/lengths.cpp, tensors/plan.cpp).
constexpr uint32_t kMaskStream = 0x6d61736b;  // "mask"
constexpr uint32_t kOfRow = 0xffffffff;       // a counter that no word of a row has

Philox4 draw(uint64_t seed, int32_t seq, int64_t i, uint32_t j) {
  return philox4x32(kMaskStream, static_cast<uint32_t>(seq), static_cast<uint32_t>(i), j, seed);
}

int64_t below(int64_t range, uint32_t r) {
  return static_cast<int64_t>((uint64_t{r} * static_cast<uint64_t>(range)) >> 32);
}

}  // namespace

MaskBits::MaskBits(CustomMask kind, uint64_t seed, int32_t seq, SeqLen len)
    : len_(len), words_((int64_t{len.k} + 63) / 64), bits_(static_cast<std::size_t>(len.q * words_)) {
  switch (kind) {
    case CustomMask::kNone:
      for (int64_t i = 0; i < len.q; ++i) show(i, 0, len.k);
      break;
    case CustomMask::kRandom:
      draw_random(seed, seq);
      break;
    case CustomMask::kTree:
      draw_tree(seed, seq);
      break;
    case CustomMask::kItems:
      draw_items(seed, seq);
      break;
    case CustomMask::kBlocks:
      draw_blocks(seed, seq);
      break;
  }
}

void MaskBits::show(int64_t i, int64_t begin, int64_t end) {
  uint64_t* row = bits_.data() + i * words_;
  for (int64_t j = begin; j < end;) {
    const int64_t stop = std::min(end, (j / 64 + 1) * 64);
    const uint64_t ones = stop - j == 64 ? ~uint64_t{0} : (uint64_t{1} << (stop - j)) - 1;
    row[j / 64] |= ones << (j % 64);
    j = stop;
  }
}

/// Each bit with p = 1/2. One row in 16 sees no key.
void MaskBits::draw_random(uint64_t seed, int32_t seq) {
  for (int64_t i = 0; i < len_.q; ++i) {
    if (draw(seed, seq, i, kOfRow).x[0] % 16 == 0) continue;
    uint64_t* row = bits_.data() + i * words_;
    for (int64_t w = 0; w < words_; ++w) {
      const Philox4 r = draw(seed, seq, i, static_cast<uint32_t>(w));
      row[w] = uint64_t{r.x[1]} << 32 | r.x[0];
    }
    if (len_.k % 64 != 0) row[words_ - 1] &= (uint64_t{1} << (len_.k % 64)) - 1;
  }
}

/// The last keys are the nodes of a tree, one for each query that has a key on its diagonal. The parent of a node is
/// one of the four before it, or the last older key. A query without a key sees nothing.
void MaskBits::draw_tree(uint64_t seed, int32_t seq) {
  const int64_t older = std::max(0, len_.k - len_.q);
  const int64_t first = std::max(0, len_.q - len_.k);  // the query of the first node
  std::vector<int64_t> parent;
  for (int64_t i = first; i < len_.q; ++i) {
    const int64_t node = i - first;
    const Philox4 r = draw(seed, seq, i, 0);
    parent.push_back(node == 0 || r.x[0] % 8 == 0 ? -1
                                                  : node - 1 - below(std::min<int64_t>(node, 4), r.x[1]));
    show(i, 0, older);
    for (int64_t n = node; n >= 0; n = parent[static_cast<std::size_t>(n)]) show(i, older + n, older + n + 1);
  }
}

/// A prefix, then items of drawn lengths. A query of the prefix sees the keys up to its own; one of an item sees
/// the prefix, and its item up to itself. A query without a key sees nothing.
void MaskBits::draw_items(uint64_t seed, int32_t seq) {
  const int64_t shift = int64_t{len_.k} - len_.q;
  const int64_t prefix = len_.k / 4 + below(len_.k / 4 + 1, draw(seed, seq, 0, kOfRow).x[0]);
  const int64_t longest = std::max<int64_t>(1, (len_.k - prefix) / 2);
  int64_t begin = prefix, end = prefix;
  for (int64_t key = 0; key < len_.k; ++key) {
    if (key >= prefix && key == end) {
      begin = end;
      end += 1 + below(std::min<int64_t>(longest, 64), draw(seed, seq, key, 0).x[0]);
    }
    const int64_t i = key - shift;
    if (i < 0) continue;
    show(i, 0, std::min(key + 1, prefix));
    if (key >= prefix) show(i, begin, key + 1);
  }
}

/// Blocks of queries see blocks of keys, each with p = 1/2.
void MaskBits::draw_blocks(uint64_t seed, int32_t seq) {
  for (int64_t i = 0; i < len_.q; ++i) {
    for (int64_t block = 0; block * kMaskBlockKeys < len_.k; ++block) {
      if (draw(seed, seq, i / kMaskBlockQueries, static_cast<uint32_t>(block)).x[0] % 2 == 0) continue;
      show(i, block * kMaskBlockKeys, std::min<int64_t>((block + 1) * kMaskBlockKeys, len_.k));
    }
  }
}

}  // namespace attnbench
