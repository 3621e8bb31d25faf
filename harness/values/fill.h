// Fills a physical tensor from logical coordinates, on the host. harness/device/cuda/fill.cu does the same on
// the GPU.
#pragma once

#include <cstdint>
#include <span>

#include "harness/values/values.h"
#include "kernels/contract/dtype.h"

namespace attnbench {

/// Sequence of rows that belong to none but hold finite numbers (LayoutVariant::finite_padding).
inline constexpr int32_t kNoSequence = 1 << 30;

/// Which logical row a physical row holds. seq < 0: poison. Poison has all bits one, which is NaN in every
/// floating type but e2m1. int8 has no NaN: its poison is -128, to which no value rounds. Nor has e2m1: the scales of
/// such rows are NaN.
struct RowOwner {
  int32_t seq;
  int32_t pos;
};

/// Fills rows 0..num_rows-1. Values are first multiplied by stored_factor. Row r, head h starts at element
///   (r / block_size) * stride_block + (r % block_size) * stride_token + h * stride_head.
/// A plain (rows, heads, D) tensor is one block of num_rows.
struct FillJob {
  void* base;
  DType dtype;
  Tensor tensor;
  ValueSpec spec;
  int64_t num_rows;
  int64_t block_size;
  int64_t stride_block;
  int64_t stride_token;
  int64_t stride_head;
  int32_t num_heads;
  int32_t head_dim;
  const RowOwner* owners;  ///< (num_rows), in memory of the device that fills
  int32_t first_channel;   ///< logical channel of a row's first element, a multiple of 4
  bool block_scales;       ///< element c is block_scale() of block c
};

/// Element offset of row `r`, head `h`.
ATTNBENCH_HD inline int64_t fill_offset(const FillJob& job, int64_t r, int32_t h) {
  return (r / job.block_size) * job.stride_block + (r % job.block_size) * job.stride_token +
         h * job.stride_head;
}

/// Up to this many elements or words, one thread is faster than a team. A team costs some 20 us on an idle
/// machine and a turn of the scheduler on a busy one, for each of a case's dozen buffers.
inline constexpr int64_t kWorthThreads = 1 << 15;

/// Host memory that is left out.
struct Hole {
  const char *begin, *end;
};

/// Calls f(begin, bytes) for what lies between the holes.
template <class F>
void for_each_part(const void* p, int64_t bytes, std::span<const Hole> holes, const F& f) {
  const char *at = static_cast<const char*>(p), *const end = at + bytes;
  for (const Hole& hole : holes) {
    if (at < hole.begin && at < end) f(at, (hole.begin < end ? hole.begin : end) - at);
    if (at < hole.end) at = hole.end;
  }
  if (at < end) f(at, end - at);
}

/// Fills host memory, with threads. Rows in `holes`, which ascend, are not written.
void fill_host(const FillJob& job, std::span<const Hole> holes = {});

/// One term of a 64-bit digest of a byte range. The digest is the wrapping sum of digest_word(word, index)
/// over 8-byte words, the last one padded with zeros. It does not depend on the order of the words, so host
/// and GPU agree.
ATTNBENCH_HD inline uint64_t digest_word(uint64_t word, uint64_t index) {
  uint64_t z = word + index * 0x9E3779B97F4A7C15ull;  // splitmix64's finaliser
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
uint64_t digest_host(const void* data, int64_t bytes);

}  // namespace attnbench
