// Strides of a case's tensors: dense, or padded. Tensors of engines are often not dense: q, k and v are
// slices of one product, K and V are halves of one cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case.h"

namespace attnbench {

/// Strides of a tensor (tokens, heads, channels), in elements.
struct TokenStrides {
  int64_t token, head;
};

/// Unused elements behind each head and each token of a tensor, in a variant with padded strides. All differ,
/// so that a kernel that mixes up the strides of two tensors fails. All are multiples of 16, because kernels
/// load 16 bytes at once.
enum class Pad : int64_t {
  kNone = 0,
  kQ = 16,
  kOut = 32,
  kNewK = 48,
  kNewV = 80,
  kPartialOut = 112,
  kDOut = 144,
  kDq = 176,
  kDk = 208,
  kDv = 240,
  kQv = 272
};

inline void set_strides(const TokenStrides& from, int64_t& token, int64_t& head) {
  token = from.token;
  head = from.head;
}

TokenStrides token_strides(int64_t heads, int64_t dim, Pad pad = Pad::kNone);

/// Unused floats behind each row of LSEs and probabilities, in a variant with padded strides.
inline constexpr int64_t kPadRow = 5;

/// Whether a launch of the case changes K and V.
bool writes_cache(const CaseParams& p);

/// Strides of K or V in elements, and the rows of a block (0 if packed). V that is a view of K has K's
/// strides. Padding is made of whole rows of channels, because kernels describe tiles (TMA) in such rows.
struct KvStrides {
  int64_t block, token, head, rows;

  /// Element at which physical row `r`, KV head `h` starts.
  int64_t offset(int64_t r, int64_t h) const {
    return (rows > 0 ? r / rows * block + r % rows * token : r * token) + h * head;
  }
  /// Elements that `all` physical rows take.
  int64_t elements(int64_t all) const { return rows > 0 ? all / rows * block : all * token; }
};
inline void set_strides(const KvStrides& from, int64_t& block, int64_t& token, int64_t& head) {
  block = from.block;
  token = from.token;
  head = from.head;
}
KvStrides kv_strides(const CaseParams& p, bool is_v, bool padded = false);

/// Strides of the K or V that cache slots of a launch hold: kv_move: the destination; else kv_strides.
KvStrides cache_strides(const CaseParams& p, bool is_v, bool padded = false);

/// Strides in floats of tensors with one float per row of K or V: descales per row, computed scales. Their "rows" are
/// the blocks of rows that share one.
KvStrides row_scale_strides(const CaseParams& p, bool is_v, bool padded);

/// Strides of the scales of blocks of channels, in elements. Those of fp8_ds_mla lie in the rows of K; those of nvfp4 in
/// a tensor of their own, in the order of K's or V's.
KvStrides block_scale_strides(const CaseParams& p, bool is_v, bool padded);

/// Strides in floats of the scales that kv_append is given. All channels share a scale if `channel` is 0.
/// Padding is a multiple of four floats, because kernels load int8 scales of four channels at once.
struct GivenScaleStrides {
  int64_t head, channel;
};
GivenScaleStrides given_scale_strides(const CaseParams& p, bool is_v, bool padded);

/// Strides in floats of descales. e4m3 q, K and V: per (sequence, KV head), or as DescalesPer says; a stride is
/// 0 where its coordinate has no effect. int8 q: per (token, query head). int8 V: per (KV head, channel);
/// `outer` is not used.
struct DescaleStrides {
  int64_t outer, head;
};
inline void set_strides(const DescaleStrides& from, int64_t& outer, int64_t& head) {
  outer = from.outer;
  head = from.head;
}
DescaleStrides descale_strides(const CaseParams& p, Tensor tensor, bool padded);

/// Layout of an output in memory: `outer` x `inner` rows of `width` entries; strides in entries.
struct Extents {
  int64_t outer, outer_stride, inner, inner_stride, width;
};

/// Returns the rows of `raw` without the padding between them. If a byte of the padding is not 0xff any more,
/// `stray` says so with the tensor's name.
template <class T>
std::vector<T> without_padding(std::vector<T> raw, const Extents& e, const char* name, std::string& stray);

}  // namespace attnbench
