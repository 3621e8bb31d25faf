// Products of a few fp32 rows with rows of K and V read in place. There is no transposition and no copy, so
// long contexts run near the speed of memory. Rows of K and V are given by address. Registers convert their
// elements, in the pair order of the type (see convert.h), which q and O share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

/// Keys per call.
inline constexpr int kKeyStep = 8;
/// Most query rows per call.
inline constexpr int kRowStep = 4;

/// The rows of one call, and the rows to prefetch during it, enough calls ahead to hide the latency of
/// memory. All rows are of one KV head, `head` bytes from the listed addresses. If K and V differ in type or
/// width, the rows prefetched over the change between them differ slightly from those read. This affects only
/// time.
struct RowStream {
  const char* const* rows;
  const char* const* ahead;
  int ahead_count;
  int64_t head;

  template <class Storage>
  ATTNBENCH_INLINE const Storage* row(int j) const {
    return reinterpret_cast<const Storage*>(rows[j] + head);
  }

  ATTNBENCH_INLINE void fetch(int begin, int end, int bytes) const {
    for (int j = begin; j < std::min(end, ahead_count); ++j) {
      const char* p = ahead[j] + head;
      for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
    }
  }
};

/// acc[r * kKeys + i] += products of panel q[r] and panel x[i], lane by lane.
template <int kRows, int kKeys>
ATTNBENCH_INLINE void dot_panel(const float* q, int q_stride, const VecPair (&x)[kKeys], Vec (&acc)[8]) {
  ATTNBENCH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    Vec a = load(q + r * q_stride);
    keep_in_register(a);
    ATTNBENCH_UNROLL
    for (int i = 0; i < kKeys; ++i) acc[r * kKeys + i] = a * x[i].a + acc[r * kKeys + i];
    Vec b = load(q + r * q_stride + kLanes);
    keep_in_register(b);
    ATTNBENCH_UNROLL
    for (int i = 0; i < kKeys; ++i) acc[r * kKeys + i] = b * x[i].b + acc[r * kKeys + i];
  }
}

/// s[r * s_stride + j] = q[r] . k[j] for kRows query rows and kKeyStep keys. Rows of q are `q_stride` apart,
/// in pair order, and padded with zeros to a multiple of kPanel.
template <class T, int kRows>
__attribute__((noinline)) void dot_keys(const float* q, int q_stride, const RowStream& k, int dim, float* s,
                                        int s_stride) {
  constexpr int kKeys = kRows == 3 ? 2 : 8 / kRows;  // at most eight accumulators: one tree sums them all
  for (int j = 0; j < kKeyStep; j += kKeys) {
    k.fetch(j, j + kKeys, dim * static_cast<int>(sizeof(typename T::Storage)));
    const typename T::Storage* row[kKeys];
    for (int i = 0; i < kKeys; ++i) row[i] = k.row<typename T::Storage>(j + i);
    Vec acc[8] = {};
    int d = 0;
    for (; d + kPanel <= dim; d += kPanel) {
      VecPair x[kKeys];
      ATTNBENCH_UNROLL
      for (int i = 0; i < kKeys; ++i) x[i] = T::load_pair(row[i] + d);
      dot_panel<kRows, kKeys>(q + d, q_stride, x, acc);
    }
    if (d < dim) {
      VecPair x[kKeys];
      for (int i = 0; i < kKeys; ++i) x[i] = load_pair_part<T>(row[i] + d, dim - d);
      dot_panel<kRows, kKeys>(q + d, q_stride, x, acc);
    }
    alignas(32) float sums[8];
    store(sums, sum_lanes_of_8(acc));
    ATTNBENCH_UNROLL
    for (int r = 0; r < kRows; ++r)
      std::memcpy(s + r * s_stride + j, sums + r * kKeys, kKeys * sizeof(float));
  }
}

/// o[r] += sum over j < count of w[r * w_stride + j] v[j], for kRows rows and kPanels panels of channels from
/// d on. With kPart there is one panel, which is incomplete and ends at `dim`.
template <class T, int kRows, int kPanels, bool kPart>
ATTNBENCH_INLINE void add_values_panels(const float* w, int w_stride, const RowStream& v, int count, int d,
                                        int dim, float* o, int o_stride) {
  Vec acc[kRows][kPanels][2];
  ATTNBENCH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTNBENCH_UNROLL
    for (int c = 0; c < kPanels; ++c) {
      acc[r][c][0] = load(o + r * o_stride + d + c * kPanel);
      acc[r][c][1] = load(o + r * o_stride + d + c * kPanel + kLanes);
    }
  }
  for (int j = 0; j < count; ++j) {
    const typename T::Storage* row = v.row<typename T::Storage>(j) + d;
    VecPair x[kPanels];
    if constexpr (kPart) {
      x[0] = load_pair_part<T>(row, dim - d);
    } else {
      ATTNBENCH_UNROLL
      for (int c = 0; c < kPanels; ++c) x[c] = T::load_pair(row + c * kPanel);
    }
    ATTNBENCH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = splat(w[r * w_stride + j]);
      ATTNBENCH_UNROLL
      for (int c = 0; c < kPanels; ++c) {
        acc[r][c][0] = weight * x[c].a + acc[r][c][0];
        acc[r][c][1] = weight * x[c].b + acc[r][c][1];
      }
    }
  }
  ATTNBENCH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTNBENCH_UNROLL
    for (int c = 0; c < kPanels; ++c) {
      store(o + r * o_stride + d + c * kPanel, acc[r][c][0]);
      store(o + r * o_stride + d + c * kPanel + kLanes, acc[r][c][1]);
    }
  }
}

/// o[r] += sum over j < count of w[r * w_stride + j] v[j], for kRows rows and all channels. Requires count <=
/// kKeyStep.
template <class T, int kRows>
__attribute__((noinline)) void add_values(const float* w, int w_stride, const RowStream& v, int count,
                                          int dim, float* o, int o_stride) {
  constexpr int kPanels = kRowStep / kRows;  // six accumulators or more cover the latency of FMA
  const int bytes = dim * static_cast<int>(sizeof(typename T::Storage));
  int fetched = 0;
  int d = 0;
  for (; d + kPanels * kPanel <= dim; d += kPanels * kPanel) {
    v.fetch(fetched, fetched + kPanels, bytes);
    fetched += kPanels;
    add_values_panels<T, kRows, kPanels, false>(w, w_stride, v, count, d, dim, o, o_stride);
  }
  v.fetch(fetched, v.ahead_count, bytes);
  for (; d + kPanel <= dim; d += kPanel) {
    add_values_panels<T, kRows, 1, false>(w, w_stride, v, count, d, dim, o, o_stride);
  }
  if (d < dim) add_values_panels<T, kRows, 1, true>(w, w_stride, v, count, d, dim, o, o_stride);
}

}  // namespace attnbench::cpu
