// Rows of K or V with scales for blocks of channels (kBlockScales), as floats in scratch.
#pragma once

#include <cstdint>

#include "kernels/common/block_scales.h"
#include "kernels/common/checks.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/tile_rows.h"

namespace attnbench::cpu {

/// A few rows. The tensor's descale is not applied.
class ScaledRows {
 public:
  static constexpr int kKeys = 8;

  /// Loads rows first .. first + count - 1 of a tile of sequence `seq`; count is 1 to kKeys.
  template <class Tile>
  void load(const AttentionParams& p, int32_t seq, int32_t head, bool is_v, const Tile& tile, int first,
            int count) {
    for (int j = 0; j < count; ++j) {
      load_row(p, is_v, scaled_row(p, head, is_v, tile.locator(p, seq, first + j)), rows_ + j * kMaxHeadDim);
    }
  }
  const float* row(int j) const { return rows_ + j * kMaxHeadDim; }

 private:
  static void load_row(const AttentionParams& p, bool is_v, const ScaledRow& row, float* out) {
    const bool tail = (p.features & kKTail) != 0;
    const int32_t dim = is_v || tail ? p.head_dim_v : p.head_dim;
    const auto* numbers = static_cast<const uint8_t*>(is_v ? p.v : p.k) + row.numbers;
    for (int32_t c = 0; c < dim; c += p.scale_block) {
      const float scale = block_scale_of(p, is_v, row, c / p.scale_block);
      if (p.dtype_k == DType::kE2m1x2) {
        for (int32_t i = c; i < c + p.scale_block; ++i)
          out[i] = load_float(DType::kE2m1x2, numbers, i) * scale;
      } else {
        for (int32_t i = c; i < c + p.scale_block; i += 8) store(out + i, E4m3::load8(numbers + i) * scale);
      }
    }
    if (!tail || is_v) return;
    for (int32_t c = dim; c < p.head_dim; ++c)
      out[c] = load_float(DType::kBf16, p.k_tail, row.tail + c - dim);
  }

  alignas(64) float rows_[kKeys * kMaxHeadDim];
};

}  // namespace attnbench::cpu
