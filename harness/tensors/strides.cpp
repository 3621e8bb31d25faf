#include "harness/tensors/strides.h"

#include <algorithm>
#include <cstring>

#include "harness/cases/cost.h"
#include "harness/cases/kv_rows.h"

namespace attnbench {

TokenStrides token_strides(int64_t heads, int64_t dim, Pad pad) {
  const int64_t behind = static_cast<int64_t>(pad);
  return {heads * (dim + behind) + behind, dim + behind};
}

bool writes_cache(const CaseParams& p) { return p.does().copies() || p.append; }

namespace {

int64_t rows_of_block(const CaseParams& p) {
  if (p.kv != KvSource::kContiguous) return p.block_size;
  int64_t longest = 0;
  for (const SeqLen& s : p.seqs) longest = std::max<int64_t>(longest, s.k);
  return contiguous_capacity(longest, p.leftpad);
}

/// Strides of a pool whose rows have d channels, with `pad` unused rows behind each head, token and block.
KvStrides pool_strides(const CaseParams& p, int64_t d, int64_t pad) {
  const int64_t h = p.num_heads_kv, rows = rows_of_block(p);
  if (p.kv_layout == KvLayout::kHnd) return {(h * (rows + pad) + pad) * d, d, (rows + pad) * d, rows};
  return {(h + pad) * (rows + pad) * d, (h + pad) * d, d, rows};
}

}  // namespace

KvStrides kv_strides(const CaseParams& p, bool is_v, bool padded) {
  const bool own = is_v && !p.v_is_k_view && !p.one_row;
  const int64_t d = p.one_row ? p.head_dim + p.dim_v() : row_elements(p, own);
  const int64_t pad = !padded ? 0 : own ? 3 : 1;  // rows of channels
  if (p.kv == KvSource::kPacked) return {0, (p.num_heads_kv + pad) * d, d, 0};
  return pool_strides(p, d, pad);
}

KvStrides cache_strides(const CaseParams& p, bool is_v, bool padded) {
  const int64_t d = p.dim_of_kv(is_v);
  if (p.gathers()) {
    const TokenStrides s = token_strides(p.num_heads_kv, d,
                                         !padded ? Pad::kNone
                                         : is_v  ? Pad::kNewV
                                                 : Pad::kNewK);
    return {0, s.token, s.head, 0};
  }
  if (p.does().moves && p.two_pools) return pool_strides(p, d, !padded ? 0 : is_v ? 5 : 2);
  return kv_strides(p, is_v, padded);
}

KvStrides row_scale_strides(const CaseParams& p, bool is_v, bool padded) {
  const int64_t behind = !padded ? 0 : is_v ? 3 : 2;
  const int64_t h = p.num_heads_kv;
  if (p.kv == KvSource::kPacked) return {0, h * (1 + behind) + behind, 1 + behind, 0};
  const int64_t shared = is_v ? 1 : p.k_descale_rows;
  const int64_t rows = (rows_of_block(p) + shared - 1) / shared;
  if (p.kv_layout == KvLayout::kHnd) {
    const int64_t head = rows * (1 + behind) + behind;
    return {h * head + behind, 1 + behind, head, rows};
  }
  const int64_t token = h * (1 + behind) + behind;
  return {rows * token + behind, token, 1 + behind, rows};
}

KvStrides block_scale_strides(const CaseParams& p, bool is_v, bool padded) {
  const bool own = is_v && !p.v_is_k_view;
  if (p.kv_dtype == KvDType::kDsMla) {
    const KvStrides rows = kv_strides(p, false, padded);
    constexpr auto kSize = static_cast<int64_t>(sizeof(float));
    return {rows.block / kSize, rows.token / kSize, rows.head / kSize, rows.rows};
  }
  const int64_t n = block_scales(p, own), pad = !padded ? 0 : own ? 2 : 4;
  if (p.kv == KvSource::kPacked) return {0, (p.num_heads_kv + pad) * n, n, 0};
  return pool_strides(p, n, pad);
}

GivenScaleStrides given_scale_strides(const CaseParams& p, bool is_v, bool padded) {
  const int64_t behind = !padded ? 0 : is_v ? 8 : 4;
  const bool int8 = p.type_of_kv(is_v) == DType::kInt8;
  switch (p.descales_of(is_v)) {
    case DescalesPer::kTensor:
      return {0, 0};
    case DescalesPer::kHead:
      return {1 + behind, 0};
    case DescalesPer::kChannel:
      return {p.dim_of_kv(is_v) + behind, 1};
    case DescalesPer::kUsual:
    case DescalesPer::kToken:
      break;
  }
  if (int8) return {p.dim_of_kv(is_v) + behind, 1};
  return {1 + behind, 0};
}

DescaleStrides descale_strides(const CaseParams& p, Tensor tensor, bool padded) {
  const int64_t behind = !padded ? 0 : tensor == Tensor::kQ ? 1 : tensor == Tensor::kK ? 2 : 3;
  if (tensor == Tensor::kV && p.type_of_v() == DType::kInt8) return {p.num_heads_kv, p.dim_v() + behind};
  const bool per_token = tensor == Tensor::kQ && p.type_of_q() == DType::kInt8;
  if (tensor != Tensor::kQ && p.scale_block() > 0) return {0, 0};  // one for the tensor, or none
  switch (tensor == Tensor::kQ ? p.q_descales : p.descales_of(tensor == Tensor::kV)) {
    case DescalesPer::kTensor:
      return {0, 0};
    case DescalesPer::kHead:
      return {0, 1 + behind};
    case DescalesPer::kChannel:
      return {0, p.dim_v() + behind};
    case DescalesPer::kUsual:
    case DescalesPer::kToken:  // of q; row_scale_strides has those of K and V
      break;
  }
  const int64_t heads = per_token ? p.num_heads_q : p.num_heads_kv;
  return {heads * (1 + behind) + behind, 1 + behind};
}

template <class T>
std::vector<T> without_padding(std::vector<T> raw, const Extents& e, const char* name, std::string& stray) {
  std::vector<T> out;
  out.reserve(static_cast<std::size_t>(e.outer * e.inner * e.width));
  for (int64_t i = 0; i < e.outer; ++i) {
    for (int64_t j = 0; j < e.inner; ++j) {
      const auto row = raw.begin() + i * e.outer_stride + j * e.inner_stride;
      out.insert(out.end(), row, row + e.width);
      std::memset(&*row, 0xff, static_cast<std::size_t>(e.width) * sizeof(T));
    }
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(raw.data());
  if (std::any_of(bytes, bytes + raw.size() * sizeof(T), [](unsigned char x) { return x != 0xff; })) {
    stray = std::string("written between the rows of ") + name;
  }
  return out;
}

template std::vector<unsigned char> without_padding(std::vector<unsigned char>, const Extents&, const char*,
                                                    std::string&);
template std::vector<float> without_padding(std::vector<float>, const Extents&, const char*, std::string&);

}  // namespace attnbench
