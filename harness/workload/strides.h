// Where the rows of a case's tensors lie: wall to wall, or padded, as tensors of engines often are (q, k and
// v are slices of one product, K and V halves of one cache).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case.h"

namespace attnbench {

/// Of a tensor (tokens, heads, channels), in elements.
struct TokenStrides {
  int64_t token, head;
};

/// Padding of the tensors in a variant with padded strides, in elements behind each head and each token. All
/// differ, so that one tensor's strides in place of another's show; multiples of 16, as kernels that load 16
/// bytes at once ask.
enum class Pad : int64_t { kNone = 0, kQ = 16, kOut = 32, kNewK = 48, kNewV = 80, kPartialOut = 112 };

TokenStrides token_strides(int64_t heads, int64_t dim, Pad pad = Pad::kNone);

/// Padded strides of LSEs and probabilities leave as many floats unused behind a row.
inline constexpr int64_t kPadRow = 5;

/// Whether a launch of the case changes K and V.
bool writes_cache(const CaseParams& p);

/// (stride_block, stride_token, stride_head) in elements of K or V of a case, and the rows of a block. Those
/// of V are K's where V is a view of it. Padded ones are whole rows of channels, as descriptors of tiles ask.
struct KvStrides {
  int64_t block, token, head, rows;

  /// Element of row `r` of all, KV head `h`.
  int64_t offset(int64_t r, int64_t h) const {
    return (rows > 0 ? r / rows * block + r % rows * token : r * token) + h * head;
  }
  /// Elements that `all` rows take.
  int64_t elements(int64_t all) const { return rows > 0 ? all / rows * block : all * token; }
};
KvStrides kv_strides(const CaseParams& p, bool is_v, bool padded = false);

/// The same of floats of which each stands for a row of K or V: descales of int8 K, computed scales.
KvStrides row_scale_strides(const CaseParams& p, bool is_v, bool padded);

/// (stride_head, stride_channel) in floats of the scales that kv_append is given. A stride of 0 shares them.
/// Padding keeps int8 scales of four channels together, as a kernel loads them.
struct GivenScaleStrides {
  int64_t head, channel;
};
GivenScaleStrides given_scale_strides(const CaseParams& p, bool is_v, bool padded);

/// (stride_outer, stride_head) in floats of the descales of e4m3 q, K or V, per (sequence, KV head), of int8
/// q, per (token, query head), and of int8 V, per (KV head, channel).
struct DescaleStrides {
  int64_t outer, head;
};
DescaleStrides descale_strides(const CaseParams& p, Tensor tensor, bool padded);

/// An output as it lies in memory, and the outer, inner and innermost extents of what counts of it.
struct Extents {
  int64_t outer, outer_stride, inner, inner_stride, width;
};

/// `raw` without what lies between its rows. `stray` names the tensor where a byte there is not 0xff any
/// more.
template <class T>
std::vector<T> without_padding(std::vector<T> raw, const Extents& e, const char* name, std::string& stray);

}  // namespace attnbench
