// Tensors and parameters that launches of several ops have.
#pragma once

#include <vector>

#include "harness/tensors/workload.h"

namespace attnbench {

/// cu_seqlens_q, and cu_seqlens_k if keys are packed.
void add_lengths(Workload& w);
/// alibi_slopes and sinks, if the case has them.
void add_score_terms(Workload& w);
void add_rotary_tables(Workload& w);

RotaryParams rotary_shape(const CaseParams& p);
void set_rotary_tables(const Workload& w, RotaryParams& rotary);

inline Pad pad_if(bool padded, Pad of) { return padded ? of : Pad::kNone; }
/// Stride of a head in an LSE (Hq, rows), and of a token in one (rows, Hq); 0 if heads are outside.
inline int64_t lse_stride(int64_t rows, bool padded) { return rows + (padded ? kPadRow : 0); }
inline int64_t token_major_stride(const CaseParams& p, bool padded) {
  return p.out_lse_token_major ? p.num_heads_q + (padded ? kPadRow : 0) : 0;
}

/// Where O and LSE of a launch lie, with strides in elements.
struct OutputLayout {
  int64_t rows, heads, width;
  TokenStrides out;
  int64_t lse_stride_head, lse_stride_token;  ///< stride_token 0: heads are outside

  int64_t lse_bytes() const {
    const int64_t elements = lse_stride_token > 0 ? rows * lse_stride_token : heads * lse_stride_head;
    return elements * int64_t{sizeof(float)};
  }
};
/// Downloads O and LSE as verification reads them: dense, with natural logarithms (heads, rows). `rows`: only these;
/// null: all.
void download_o_and_lse(const Workload& w, OutputLayout layout, HostOutputs& h,
                        const std::vector<int64_t>* rows = nullptr);
/// Rows (outer, rows.size(), width) of `from`, whose outer parts are `stride` apart, and what follows the last of the
/// `total` rows of each part.
template <class T>
std::vector<T> rows_of(const T* from, int64_t outer, int64_t stride, int64_t total, int64_t width,
                       const std::vector<int64_t>& rows) {
  std::vector<T> out;
  for (int64_t o = 0; o < outer; ++o) {
    const T* part = from + o * stride;
    for (const int64_t r : rows) out.insert(out.end(), part + r * width, part + (r + 1) * width);
    out.insert(out.end(), part + total * width, part + stride);
  }
  return out;
}

}  // namespace attnbench
