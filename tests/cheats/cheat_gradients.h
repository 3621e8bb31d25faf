// What the cheats with op attention_backward share: a right kernel for the cpu device, pair by pair, and parts of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/common/checks_backward.h"
#include "tests/cheats/table.h"

namespace attnbench::cheats {

extern const Kernel kRight;  // defined at the end of this file

using Grads = AttentionBackwardParams;

/// Which rows are written: dq of these queries, dk and dv of these keys.
using Wanted = bool (*)(int32_t position, int32_t length);
inline bool all_rows(int32_t, int32_t) { return true; }

inline std::vector<float> row_of(const Grads& p, const void* tensor, int64_t offset, int32_t dim) {
  std::vector<float> row;
  for (int32_t c = 0; c < dim; ++c) row.push_back(load_float(p.dtype, tensor, offset + c));
  return row;
}
inline float dot(const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}
inline void store(const Grads& p, void* to, int64_t offset, const float* row, int32_t dim) {
  for (int32_t c = 0; c < dim; ++c) store_float(p.dtype, to, offset + c, row[c]);
}

/// Gradients of one sequence and KV head, and dq of the query heads that read it. Pairs of no wanted row are left out.
inline void compute_head(const Grads& p, int32_t b, int32_t kv_head, Wanted wanted) {
  const int64_t q0 = p.cu_seqlens_q[b], k0 = p.cu_seqlens_k[b];
  const auto q_len = static_cast<int32_t>(p.cu_seqlens_q[b + 1] - q0),
             k_len = static_cast<int32_t>(p.cu_seqlens_k[b + 1] - k0);
  const auto d = static_cast<std::size_t>(p.head_dim), dv_dim = static_cast<std::size_t>(p.head_dim_v);
  std::vector<std::vector<float>> k, v;
  for (int32_t j = 0; j < k_len; ++j) {
    k.push_back(row_of(p, p.k, (k0 + j) * p.k_stride_token + kv_head * p.k_stride_head, p.head_dim));
    v.push_back(row_of(p, p.v, (k0 + j) * p.v_stride_token + kv_head * p.v_stride_head, p.head_dim_v));
  }
  std::vector<float> dk(k.size() * d), dv(v.size() * dv_dim);
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  for (int32_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    for (int32_t i = 0; i < q_len; ++i) {
      const int64_t row = q0 + i;
      const auto q = row_of(p, p.q, row * p.q_stride_token + h * p.q_stride_head, p.head_dim);
      const auto d_out =
          row_of(p, p.d_out, row * p.d_out_stride_token + h * p.d_out_stride_head, p.head_dim_v);
      const float delta =
          dot(d_out, row_of(p, p.out, row * p.out_stride_token + h * p.out_stride_head, p.head_dim_v));
      const float lse = p.lse[h * p.lse_stride_head + row];
      std::vector<float> dq(d);
      const int32_t end = p.causal ? std::clamp(i + k_len - q_len + 1, 0, k_len) : k_len;
      for (int32_t j = 0; j < end; ++j) {
        if (!wanted(i, q_len) && !wanted(j, k_len)) continue;
        const auto at = static_cast<std::size_t>(j);
        const float weight = std::exp(p.softmax_scale * dot(q, k[at]) - lse);
        const float ds = p.softmax_scale * weight * (dot(d_out, v[at]) - delta);
        for (std::size_t c = 0; c < d; ++c) {
          dq[c] += ds * k[at][c];
          dk[at * d + c] += ds * q[c];
        }
        for (std::size_t c = 0; c < dv_dim; ++c) dv[at * dv_dim + c] += weight * d_out[c];
      }
      if (wanted(i, q_len))
        store(p, p.dq, row * p.dq_stride_token + h * p.dq_stride_head, dq.data(), p.head_dim);
    }
  }
  for (int32_t j = 0; j < k_len; ++j) {
    if (!wanted(j, k_len)) continue;
    const auto at = static_cast<std::size_t>(j);
    store(p, p.dk, (k0 + j) * p.dk_stride_token + kv_head * p.dk_stride_head, dk.data() + at * d, p.head_dim);
    store(p, p.dv, (k0 + j) * p.dv_stride_token + kv_head * p.dv_stride_head, dv.data() + at * dv_dim,
          p.head_dim_v);
  }
}

/// All gradients of KV heads [begin, end) and of the query heads that read them.
inline void compute_heads(const Grads& p, int32_t begin, int32_t end, Wanted wanted = all_rows) {
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t head = begin; head < end; ++head) compute_head(p, b, head, wanted);
  }
}

inline KernelStatus compute(const OpParams* op, const LaunchContext*, KernelMessage*) {
  compute_heads(op->attention_backward, 0, op->attention_backward.num_heads_kv);
  return KernelStatus::kOk;
}

/// Gradients that are kept, as they lie in memory from the first token of a sequence on.
struct Kept {
  std::vector<char> dq, dk, dv;
};
/// Calls f(kept bytes, memory, size) for dq, dk and dv.
template <class Function>
void for_tensors(const Grads& p, Kept& kept, Function&& f) {
  const auto part = [&](std::vector<char>& bytes, void* tensor, int64_t first, int64_t last, int64_t stride) {
    const auto size = static_cast<int64_t>(dtype_size(p.dtype));
    f(bytes, static_cast<char*>(tensor) + first * stride * size,
      static_cast<std::size_t>((last - first) * stride * size));
  };
  part(kept.dq, p.dq, p.cu_seqlens_q[0], p.cu_seqlens_q[p.batch], p.dq_stride_token);
  part(kept.dk, p.dk, p.cu_seqlens_k[0], p.cu_seqlens_k[p.batch], p.dk_stride_token);
  part(kept.dv, p.dv, p.cu_seqlens_k[0], p.cu_seqlens_k[p.batch], p.dv_stride_token);
}
inline Kept keep(const Grads& p) {
  Kept kept;
  for_tensors(p, kept,
              [](std::vector<char>& bytes, char* from, std::size_t n) { bytes.assign(from, from + n); });
  return kept;
}
inline void put(const Grads& p, Kept& kept) {
  for_tensors(p, kept,
              [](std::vector<char>& bytes, char* to, std::size_t n) { std::memcpy(to, bytes.data(), n); });
}

/// How often the gradient has been launched on, this launch included.
inline int count_launch(const void* dq) {
  static std::map<const void*, int> launches;
  return ++launches[dq];
}

inline KernelStatus supports(const OpParams* op, const LaunchContext*, KernelMessage* message) {
  if (const auto s = check_features(kRight, *op, message); s != KernelStatus::kOk) return s;
  return check_backward_args(kRight, op->attention_backward, message);
}

const Kernel kRight{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "gradients",
    .summary = "one thread, pair by pair",
    .shapes = "head_dim 1..256",
    .op = Op::kAttentionBackward,
    .device = DeviceKind::kCpu,
    .min_compute_capability = 0,
    .features = kPackedKv | kCausal | kBf16 | kFp16,
    .supports = supports,
    .numerics =
        [](const OpParams*) {
          return Numerics{DType::kFp32, DType::kFp32, 0x1p-23};
        },
    .workspace_bytes = nullptr,
    .plan = nullptr,
    .launch = compute,
};

}  // namespace attnbench::cheats
