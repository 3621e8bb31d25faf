// Keys of a launch with kRotaryCached: turned to their positions and rounded to their type, in scratch.
#pragma once

#include <cstdint>

#include "kernels/common/checks.h"
#include "kernels/common/rotary.h"

namespace attnbench::cpu {

/// A few rows of K. `K`: the reader of their type (convert.h).
template <class K>
class TurnedKeys {
 public:
  static constexpr int kKeys = 8;
  using Storage = typename K::Storage;

  /// Turns keys first_key .. first_key + count - 1 of KV head `head`, whose rows stand at the offsets `at` of
  /// head 0. count is 1 to kKeys.
  void turn(const AttentionParams& p, int32_t head, int32_t first_key, int count, const int64_t* at) {
    for (int j = 0; j < count; ++j) {
      const Storage* from = static_cast<const Storage*>(p.k) + at[j] + head * p.k_stride_head;
      const auto load = [from](int32_t c) { return K::to_float(from[c]); };
      for (int32_t c = 0; c < p.head_dim; ++c) {
        store_float(p.dtype_k, rows_, int64_t{j} * p.head_dim + c, turned_key(p, first_key + j, c, load));
      }
    }
  }
  const Storage* row(const AttentionParams& p, int j) const { return rows_ + int64_t{j} * p.head_dim; }

 private:
  alignas(64) Storage rows_[kKeys * kMaxHeadDim];
};

}  // namespace attnbench::cpu
