// Filling a physical tensor from logical coordinates, on the host. The GPU's twin is
// harness/device/cuda/fill.cu.
#pragma once

#include <cstdint>

#include "harness/values/values.h"
#include "kernels/contract/dtype.h"

namespace attnbench {

/// Which logical row a physical row holds. seq < 0: poison (all bits one: NaN in every floating type; in
/// int8, which has no NaN, -128, which no value rounds to).
struct RowOwner {
  int32_t seq;
  int32_t pos;
};

/// Fills rows 0..num_rows-1; int8 with values times int8_factor. Row r, head h, starts at element
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
  const RowOwner* owners;  ///< (num_rows), memory of the device that does the job
};

/// Element offset of row `r`, head `h`.
ATTNBENCH_HD inline int64_t fill_offset(const FillJob& job, int64_t r, int32_t h) {
  return (r / job.block_size) * job.stride_block + (r % job.block_size) * job.stride_token +
         h * job.stride_head;
}

/// Does the job on host memory, threaded.
void fill_host(const FillJob& job);

/// A 64-bit digest of a byte range that does not depend on the order in which parts are read, so that host
/// and GPU agree: the wrapping sum over 8-byte words (the last one padded with zeros) of mix(word, index).
ATTNBENCH_HD inline uint64_t digest_word(uint64_t word, uint64_t index) {
  uint64_t z = word + index * 0x9E3779B97F4A7C15ull;  // splitmix64's finaliser
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
uint64_t digest_host(const void* data, int64_t bytes);

}  // namespace attnbench
