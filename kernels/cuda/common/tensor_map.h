// Tensor maps, which tell the copy engine how a tensor lies in memory. Host code.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/contract/dtype.h"

namespace attnbench::hopper {

/// Bytes of a swizzled row: tiles lie in shared memory as [chunks of 64 channels][rows][128 bytes], or,
/// grouped, as [groups of 8 rows][chunks][8 rows][128 bytes].
inline constexpr int kChunkBytes = 128;
inline constexpr int kChunkChannels = 64;
inline constexpr int kElementBytes = 2;  ///< of a map: two channels of an 8-bit type are one element
inline constexpr int kGroupRows = 8;     ///< rows of a swizzle atom: the swizzle mixes 1024 bytes of a chunk

/// Row bound of a row-window map: a window of v rows has row coordinate kRowBound - v.
inline constexpr int32_t kRowBound = 1 << 30;

/// cuTensorMapEncodeTiled, found through the runtime so that no program has to link the driver library. Null
/// where the driver lacks it.
inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &found);
    const bool ok = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return ok ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function) : nullptr;
  }();
  return encoder;
}

/// Encodes a map of rank kRank with 16-bit elements: `dims` and `box` in elements, innermost first, `strides`
/// in bytes of all dimensions but the innermost. The innermost row of a box has 128 or 64 bytes, and the
/// swizzle has as many. L2 fetches 128 bytes at a time: with 256 an H200 reads 4 to 8 % slower, and an H100 as
/// fast. False where the driver refuses.
template <int kRank>
bool encode_map(CUtensorMap* map, DType dtype, const void* base, const uint64_t (&dims)[kRank],
                const uint64_t (&strides)[kRank - 1], const uint32_t (&box)[kRank]) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return false;
  uint32_t element_strides[kRank];
  for (uint32_t& s : element_strides) s = 1;
  const auto type =
      dtype == DType::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto swizzle =
      box[0] * kElementBytes == kChunkBytes ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  return encode(map, type, kRank, const_cast<void*>(base), dims, strides, box, element_strides,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Encodes a row-window map over 16-bit rows `row_bytes` apart, each of `row_chunks` chunks of 64 channels.
/// One box is `box_rows` rows of `box_chunks` chunks. The box at coordinates
///     {0, kRowBound - valid, chunk, row + valid, kRowBound}
/// holds rows row, row + 1, ... of the tensor from channel 64 * chunk on, and zeros from its row `valid` on.
/// So rows past a sequence's end are never read, whatever follows them in memory. The box at
///     {0, -lead, chunk, row + lead, 0}
/// holds zeros in its first `lead` rows, then rows row + lead, row + lead + 1, ... of the tensor.
///
/// Why it works: dimension 1 ends at row kRowBound and so bounds the box, while dimensions 3 and 4 only move
/// its address. Dimension 4 adds kRowBound * (2^34 - row_bytes) = -kRowBound * row_bytes modulo 2^64, which
/// leaves row * row_bytes.
///
/// `chunk_bytes` = 64 makes chunks of half the channels, in the 64-byte swizzle; 128 elsewhere.
inline bool encode_row_window_map(CUtensorMap* map, DType dtype, const void* base, uint64_t row_bytes,
                                  uint64_t row_chunks, uint32_t box_rows, uint32_t box_chunks,
                                  uint32_t chunk_bytes = kChunkBytes) {
  constexpr uint64_t kAnyRow = 0x7fff0000;
  const uint32_t channels = chunk_bytes / kElementBytes;
  const uint64_t dims[5] = {channels, kRowBound, row_chunks, kAnyRow, kAnyRow};
  const uint64_t strides[4] = {row_bytes, chunk_bytes, row_bytes, (uint64_t{1} << 34) - row_bytes};
  const uint32_t box[5] = {channels, box_rows, box_chunks, 1, 1};
  return encode_map(map, dtype, base, dims, strides, box);
}

/// Encodes a grouped map over the same rows, for boxes of `box_rows` rows, a multiple of 8. All rows of a box
/// are read. One box brings all `box_chunks` chunks, grouped. The box at coordinates {0, 0, chunk, 0, row}
/// holds rows row, row + 1, ...
inline bool encode_grouped_map(CUtensorMap* map, DType dtype, const void* base, uint64_t row_bytes,
                               uint64_t row_chunks, uint32_t box_rows, uint32_t box_chunks,
                               uint32_t chunk_bytes = kChunkBytes) {
  constexpr uint64_t kAnyRow = 0x7fff0000;
  const uint32_t channels = chunk_bytes / kElementBytes;
  const uint32_t groups = box_rows / kGroupRows;
  const uint64_t dims[5] = {channels, kGroupRows, row_chunks, groups, kAnyRow};
  const uint64_t strides[4] = {row_bytes, chunk_bytes, kGroupRows * row_bytes, row_bytes};
  const uint32_t box[5] = {channels, kGroupRows, box_chunks, groups, 1};
  return encode_map(map, dtype, base, dims, strides, box);
}

}  // namespace attnbench::hopper
