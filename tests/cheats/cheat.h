// What the cheats for the cpu device share: the right kernel of kernels/examples/cpu and a table made of a changed
// copy of it. A cheat holds only its trick.
#pragma once

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/cheats/table.h"
#pragma push_macro("ATTNBENCH_PLUGIN")
#undef ATTNBENCH_PLUGIN
#define ATTNBENCH_PLUGIN(...) static_assert(true)  // the example without its table
#include "kernels/examples/cpu/kernel.cpp"
#pragma pop_macro("ATTNBENCH_PLUGIN")

namespace attnbench::cheats {

inline const Kernel& kRight = example::kAttention;

/// Computes the launch as it should be.
inline KernelStatus compute(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return kRight.launch(op, context, message);
}

/// Calls f(b, i, head) for the rows of heads [begin, end).
template <class Function>
void for_rows(const AttentionParams& p, int32_t begin, int32_t end, Function&& f) {
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t i = 0; i < seq_range(p, b).q_len; ++i) {
      for (int32_t head = begin; head < end; ++head) f(b, i, head);
    }
  }
}

inline void compute_heads(const AttentionParams& p, int32_t begin, int32_t end) {
  for_rows(p, begin, end, [&](int32_t b, int32_t i, int32_t head) { example::attend(p, b, i, head); });
}
inline void compute_half(const AttentionParams& p) { compute_heads(p, 0, p.num_heads_q / 2); }

/// O of one row: head_dim_v stored numbers.
inline char* out_row(const AttentionParams& p, int32_t b, int32_t i, int32_t head) {
  return static_cast<char*>(p.out) +
         static_cast<std::size_t>(out_offset(p, seq_range(p, b).q_begin + i, head)) * dtype_size(p.dtype_out);
}
inline float& lse_row(const AttentionParams& p, int32_t b, int32_t i, int32_t head) {
  return p.lse[lse_offset(p, seq_range(p, b).q_begin + i, head)];
}
inline std::size_t row_bytes(const AttentionParams& p) {
  return static_cast<std::size_t>(p.head_dim_v) * dtype_size(p.dtype_out);
}

/// A result that is kept: the rows of heads [begin, end).
struct Kept {
  std::vector<char> out;
  std::vector<float> lse;
};
inline Kept keep(const AttentionParams& p, int32_t begin, int32_t end) {
  Kept kept;
  for_rows(p, begin, end, [&](int32_t b, int32_t i, int32_t head) {
    const char* row = out_row(p, b, i, head);
    kept.out.insert(kept.out.end(), row, row + row_bytes(p));
    kept.lse.push_back(lse_row(p, b, i, head));
  });
  return kept;
}
inline Kept keep(const AttentionParams& p) { return keep(p, 0, p.num_heads_q); }
inline void put(const AttentionParams& p, const Kept& kept, int32_t begin, int32_t end) {
  std::size_t n = 0;
  for_rows(p, begin, end, [&](int32_t b, int32_t i, int32_t head) {
    std::memcpy(out_row(p, b, i, head), kept.out.data() + n * row_bytes(p), row_bytes(p));
    lse_row(p, b, i, head) = kept.lse[n++];
  });
}
inline void put(const AttentionParams& p, const Kept& kept) { put(p, kept, 0, p.num_heads_q); }

/// Computes the launch into memory of its own.
inline Kept compute_apart(const AttentionParams& launch) {
  AttentionParams p = launch;
  const auto rows = static_cast<std::size_t>(p.total_q);
  std::vector<char> out(rows * static_cast<std::size_t>(p.num_heads_q) * row_bytes(p));
  std::vector<float> lse(rows * static_cast<std::size_t>(p.num_heads_q));
  p.out = out.data();
  p.out_stride_head = p.head_dim_v;
  p.out_stride_token = int64_t{p.num_heads_q} * p.head_dim_v;
  p.lse = lse.data();
  p.lse_stride_head = static_cast<int64_t>(rows);
  compute_heads(p, 0, p.num_heads_q);
  return keep(p);
}

/// FNV-1a over 16-bit elements (bf16 or fp16), each with `mask`. 0x7fff leaves the sign out.
struct Hash {
  uint64_t value = 1469598103934665603ull;
  uint16_t mask = 0xffff;
  void add(const void* data, int64_t offset, int32_t count) {
    const auto* x = static_cast<const uint16_t*>(data) + offset;
    for (int32_t c = 0; c < count; ++c) value = (value ^ (x[c] & mask)) * 1099511628211ull;
  }
};
/// Hash of everything that the launch reads.
inline uint64_t hash_inputs(const AttentionParams& p, uint16_t mask) {
  Hash h{.mask = mask};
  for_rows(p, 0, p.num_heads_q, [&](int32_t b, int32_t i, int32_t head) {
    h.add(p.q, q_offset(p, seq_range(p, b).q_begin + i, head), p.head_dim);
  });
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t j = 0; j < seq_range(p, b).k_len; ++j) {
      for (int32_t head = 0; head < p.num_heads_kv; ++head) {
        h.add(p.k, k_row_offset(p, b, j) + head * p.k_stride_head, p.head_dim);
        h.add(p.v, v_row_offset(p, b, j) + head * p.v_stride_head, p.head_dim_v);
      }
    }
  }
  return h.value;
}

/// How often the output has been launched on, this launch included.
inline int count_launch(const void* out) {
  static std::map<const void*, int> launches;
  return ++launches[out];
}

}  // namespace attnbench::cheats
