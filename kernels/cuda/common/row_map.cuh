// Copies rows of K or V through a row-window map (tensor_map.h).
#pragma once

#include "kernels/cuda/common/kv_rows.h"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/common/tma.cuh"

namespace attnbench::hopper {

/// A map of K or V with the units of its coordinates. One thread issues each copy.
struct RowMap {
  const CUtensorMap& map;
  const KvRows& rows;

  __device__ __forceinline__ int32_t chunk_of(int32_t kv_head) const { return kv_head * rows.head_chunks; }
  __device__ __forceinline__ int32_t row_of(int32_t block, int32_t row) const {
    return block * rows.block_rows + row;
  }

  /// Copies one box: the `valid` rows from `row` on, chunks from `chunk` on. The box's other rows arrive as
  /// zeros.
  __device__ __forceinline__ void load(void* destination, int32_t chunk, int32_t row, int32_t valid,
                                       Mbarrier& done) const {
    tma_load(destination, map, {0, kRowBound - valid, chunk, row + valid, kRowBound}, done);
  }
  /// The same for rows that a launch reads once.
  __device__ __forceinline__ void load_once(void* destination, int32_t chunk, int32_t row, int32_t valid,
                                            Mbarrier& done) const {
    tma_load_once(destination, map, {0, kRowBound - valid, chunk, row + valid, kRowBound}, done);
  }
  /// Copies one box whose first `lead` rows arrive as zeros.
  __device__ __forceinline__ void load_behind(void* destination, int32_t chunk, int32_t row, int32_t lead,
                                              Mbarrier& done) const {
    tma_load(destination, map, {0, -lead, chunk, row + lead, 0}, done);
  }
};

}  // namespace attnbench::hopper
