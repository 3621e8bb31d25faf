// Copies a row of bytes with one warp.
#pragma once

#include <cstdint>

namespace attnbench::cuda_simt {

/// Copies `count` words of type T with one warp.
template <class T>
__device__ inline void copy_words(char* dst, const char* src, int count, int lane) {
  for (int i = lane; i < count; i += 32) reinterpret_cast<T*>(dst)[i] = reinterpret_cast<const T*>(src)[i];
}

/// Copies `bytes` bytes with one warp, in the widest words that both addresses and the length allow.
__device__ inline void copy_row(char* dst, const char* src, int bytes, int lane) {
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src) | static_cast<uintptr_t>(bytes);
  if (bits % 16 == 0) {
    copy_words<uint4>(dst, src, bytes / 16, lane);
  } else if (bits % 4 == 0) {
    copy_words<uint32_t>(dst, src, bytes / 4, lane);
  } else if (bits % 2 == 0) {
    copy_words<uint16_t>(dst, src, bytes / 2, lane);
  } else {
    copy_words<uint8_t>(dst, src, bytes, lane);
  }
}

}  // namespace attnbench::cuda_simt
