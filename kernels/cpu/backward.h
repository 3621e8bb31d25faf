// The cpu attention_backward kernel: one query head of one sequence against all its keys.
//
//   delta[row] = O.dO
//   per tile of keys, per tile of rows that see some of them:
//     S[row][key] = Q K^T,  dP[row][key] = dO V^T
//     P = exp(S - LSE),  W = keep P,  dS = P (keep dP - delta) (1 - tanh^2)
//     dV[key] += W^T dO,  dK[key] += dS^T Q,  dQ[row] += dS K
//
// All five products run in the 6 x 16 register blocks of tile_gemm.h. Q, dO and K lie in panels
// [channel / kPanel][row][kPanel], which serve as the left and as the right side of a product; K and V lie
// transposed besides, [key / kPanel][channel][kPanel]. Channels are padded with zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/contract/kernel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

inline constexpr int kBackwardRows = 96;  ///< rows of a tile
inline constexpr int kBackwardKeys = 96;  ///< keys of a tile, a multiple of kPanel

/// One query head of one sequence.
struct BackwardTask {
  int32_t seq, head;
  int32_t q_begin, q_len;  ///< packed rows of its queries
  int32_t k_begin, k_len;
  int64_t cost;
};

/// Memory of a thread. `rows`: of its longest task.
struct BackwardBuffers {
  float *q, *d_out, *k, *k_transposed, *v_transposed;
  float *s, *dp;       ///< [kBackwardRows][kBackwardKeys]: scores, then W; dP, then dS
  float *dk, *dv;      ///< [kBackwardKeys][padded channels]
  float* dq;           ///< [rows][padded channels]
  float *lse, *delta;  ///< [rows]

  BackwardBuffers(const AttentionBackwardParams& p, int32_t rows, Carver& carver) {
    const auto dim = static_cast<std::size_t>(round_up(p.head_dim, kPanel));
    const auto dim_v = static_cast<std::size_t>(round_up(p.head_dim_v, kPanel));
    const auto all = static_cast<std::size_t>(rows);
    q = carver.take<float>(kBackwardRows * dim);
    d_out = carver.take<float>(kBackwardRows * dim_v);
    k = carver.take<float>(kBackwardKeys * dim);
    k_transposed = carver.take<float>(kBackwardKeys * dim);
    v_transposed = carver.take<float>(kBackwardKeys * dim_v);
    s = carver.take<float>(kBackwardRows * kBackwardKeys);
    dp = carver.take<float>(kBackwardRows * kBackwardKeys);
    dk = carver.take<float>(kBackwardKeys * dim);
    dv = carver.take<float>(kBackwardKeys * dim_v);
    dq = carver.take<float>(all * dim);
    lse = carver.take<float>(all);
    delta = carver.take<float>(all);
  }
};

/// Where the rows of dk and dv of each query head go if several share a KV head: float32, (Hq, total_k, D + Dv).
inline int64_t partial_row(const AttentionBackwardParams& p, int32_t head, int64_t key) {
  return (head * p.total_k + key) * (p.head_dim + p.head_dim_v);
}

/// Runs a task. `partials`: null if each KV head has one query head. Returns the task's part of dsinks.
double run_backward(const AttentionBackwardParams& p, const BackwardTask& task,
                    const BackwardBuffers& buffers, float* partials);

}  // namespace attnbench::cpu
