// Custom masks: a bit for each query and key. This one function of the seed makes the tensors of launches
// (ops/attention/tensors_custom_mask.h), the inputs of the reference and the costs.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/config/case_params.h"

namespace attnbench {

/// Queries and keys of a block of CustomMask::kBlocks.
inline constexpr int32_t kMaskBlockQueries = 16;
inline constexpr int32_t kMaskBlockKeys = 32;

/// The bits of one sequence.
class MaskBits {
 public:
  /// Draws the bits of sequence `seq` of a case with this seed. Other sequences do not matter.
  MaskBits(CustomMask kind, uint64_t seed, int32_t seq, SeqLen len);

  /// Whether query i sees key j; i < len.q, j < len.k.
  bool sees(int64_t i, int64_t j) const { return (row(i)[j / 64] >> (j % 64) & 1) != 0; }
  /// Bits of a query, 64 keys per word; those from len.k on are 0.
  const uint64_t* row(int64_t i) const { return bits_.data() + i * words_; }
  int64_t words() const { return words_; }
  SeqLen len() const { return len_; }

 private:
  void show(int64_t i, int64_t begin, int64_t end);  ///< sets the bits of keys [begin, end) of query i
  void draw_random(uint64_t seed, int32_t seq);
  void draw_tree(uint64_t seed, int32_t seq);
  void draw_items(uint64_t seed, int32_t seq);
  void draw_blocks(uint64_t seed, int32_t seq);

  SeqLen len_;
  int64_t words_;  ///< of a row
  std::vector<uint64_t> bits_;
};

}  // namespace attnbench
