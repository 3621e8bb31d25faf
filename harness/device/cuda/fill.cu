#include "harness/device/cuda/fill.h"

#include <algorithm>

#include "harness/device/cuda/block_sum.cuh"
#include "harness/device/cuda/cuda_check.h"
#include "harness/device/device.h"

namespace attnbench {
namespace {

constexpr int kFillThreads = 256;
constexpr unsigned kDigestBlocks = 1024;  ///< several on each multiprocessor

/// Number of blocks for `items` threads. Kernels stride over the grid, so the limit costs nothing.
unsigned grid_for(int64_t items) {
  return static_cast<unsigned>(
      std::min<int64_t>((items + kFillThreads - 1) / kFillThreads, int64_t{1} << 20));
}

/// The bits of `x` rounded to kType; of e2m1x2, of one number.
template <DType kType>
__device__ auto bits_of(float x) {
  if constexpr (kType == DType::kBf16) return float_to_bf16(x);
  if constexpr (kType == DType::kFp16) return float_to_fp16(x);
  if constexpr (kType == DType::kE4m3) return float_to_e4m3(x);
  if constexpr (kType == DType::kE5m2) return float_to_e5m2(x);
  if constexpr (kType == DType::kInt8) return static_cast<uint8_t>(float_to_int8(x));
  if constexpr (kType == DType::kE2m1x2) return float_to_e2m1(x);
  if constexpr (kType == DType::kFp32) return float_bits(x);
}

/// One thread per four channels of a row and head.
template <DType kType>
__global__ void __launch_bounds__(kFillThreads) fill_kernel(const FillJob job) {
  using Bits = decltype(bits_of<kType>(0.0f));
  constexpr int kPer = numbers_per_element(kType);
  constexpr int kElements = 4 / kPer;
  struct alignas(kElements * sizeof(Bits)) Quad {
    Bits x[kElements];
  };
  const int64_t quads = (job.head_dim + 3) / 4;
  const int64_t total = job.num_rows * job.num_heads * quads;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kFillThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x; i < total; i += stride) {
    const int64_t row_head = i / quads;
    const auto quad = static_cast<uint32_t>(i % quads);
    const int64_t row = row_head / job.num_heads;
    const auto head = static_cast<int32_t>(row_head % job.num_heads);

    const RowOwner owner = job.owners[row];
    Quad quad_bits;
    if (owner.seq < 0) {
      for (Bits& b : quad_bits.x) b = kType == DType::kInt8 ? Bits{0x80} : static_cast<Bits>(~Bits{0});
    } else {
      const auto seq = static_cast<uint32_t>(owner.seq), pos = static_cast<uint32_t>(owner.pos);
      float values[4];
      if (job.block_scales) {
        for (uint32_t c = 0; c < 4; ++c)
          values[c] = block_scale(job.spec, job.tensor, seq, pos, static_cast<uint32_t>(head), 4 * quad + c);
      } else {
        values_of_quad(job.spec, job.tensor, seq, pos, static_cast<uint32_t>(head),
                       quad + static_cast<uint32_t>(job.first_channel) / 4, values);
      }
      const float factor = stored_factor(kType, job.spec.profile, job.tensor);
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        quad_bits.x[e] = bits_of<kType>(values[kPer * e] * factor);
        if constexpr (kPer == 2) quad_bits.x[e] |= bits_of<kType>(values[2 * e + 1] * factor) << 4;
      }
    }

    Bits* out = static_cast<Bits*>(job.base) + fill_offset(job, row, head) + kElements * int64_t{quad};
    const int left = (job.head_dim - 4 * static_cast<int>(quad)) / kPer;  // elements still in this row
    if (left >= kElements && reinterpret_cast<uintptr_t>(out) % alignof(Quad) == 0) {
      *reinterpret_cast<Quad*>(out) = quad_bits;
    } else {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        if (e < left) out[e] = quad_bits.x[e];
      }
    }
  }
}

/// `count` bytes from `at` on as a little-endian word, padded with zeros.
__device__ uint64_t word_of_bytes(const unsigned char* at, int count) {
  uint64_t word = 0;
  for (int i = 0; i < count; ++i) word |= uint64_t{at[i]} << (8 * i);
  return word;
}

__global__ void __launch_bounds__(kFillThreads)
    digest_kernel(const unsigned char* data, int64_t bytes, unsigned long long* sum) {
  const int64_t words = bytes / 8;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % 8 == 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kFillThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x;
  uint64_t mine = 0;
  for (int64_t i = first; i < words; i += stride) {
    const uint64_t word =
        aligned ? reinterpret_cast<const uint64_t*>(data)[i] : word_of_bytes(data + 8 * i, 8);
    mine += digest_word(word, static_cast<uint64_t>(i));
  }
  if (first == 0 && bytes % 8 != 0) {
    mine += digest_word(word_of_bytes(data + 8 * words, static_cast<int>(bytes % 8)),
                        static_cast<uint64_t>(words));
  }
  // The order does not change a wrapping sum, so atomics give the same digest each time.
  add_of_block<kFillThreads>(mine, sum);
}

template <class Bits, bool kPoison>
__global__ void __launch_bounds__(kFillThreads) returned_kernel(ReturnedTensor t) {
  const int64_t n = returned_elements(t);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kFillThreads;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kFillThreads + threadIdx.x; e < n; e += stride) {
    if constexpr (kPoison) {
      poison_returned<Bits>(t, e);
    } else {
      copy_returned<Bits>(t, e);
    }
  }
}

template <class Bits>
void take_returned(const ReturnedTensor& t, cudaStream_t stream) {
  const unsigned grid = grid_for(returned_elements(t));
  returned_kernel<Bits, false><<<grid, kFillThreads, 0, stream>>>(t);
  if (t.from.data != t.to.data) returned_kernel<Bits, true><<<grid, kFillThreads, 0, stream>>>(t);
  cuda_check(cudaGetLastError(), "kernel that takes returned outputs");
}

}  // namespace

void fill_cuda(const FillJob& job, cudaStream_t stream) {
  if (job.num_rows <= 0 || job.num_heads <= 0 || job.head_dim <= 0) return;
  const unsigned grid = grid_for(job.num_rows * job.num_heads * ((job.head_dim + 3) / 4));
  switch (job.dtype) {
    case DType::kBf16:
      fill_kernel<DType::kBf16><<<grid, kFillThreads, 0, stream>>>(job);
      break;
    case DType::kFp16:
      fill_kernel<DType::kFp16><<<grid, kFillThreads, 0, stream>>>(job);
      break;
    case DType::kFp32:
      fill_kernel<DType::kFp32><<<grid, kFillThreads, 0, stream>>>(job);
      break;
    case DType::kE4m3:
      fill_kernel<DType::kE4m3><<<grid, kFillThreads, 0, stream>>>(job);
      break;
    case DType::kInt8:
      fill_kernel<DType::kInt8><<<grid, kFillThreads, 0, stream>>>(job);
      break;
    case DType::kE5m2:
      fill_kernel<DType::kE5m2><<<grid, kFillThreads, 0, stream>>>(job);
      break;
    case DType::kE2m1x2:
      fill_kernel<DType::kE2m1x2><<<grid, kFillThreads, 0, stream>>>(job);
      break;
  }
  cuda_check(cudaGetLastError(), "fill kernel");
}

void digest_cuda(const void* data, int64_t bytes, unsigned long long* sum, cudaStream_t stream) {
  if (bytes <= 0) return;
  digest_kernel<<<std::min(grid_for((bytes + 7) / 8), kDigestBlocks), kFillThreads, 0, stream>>>(
      static_cast<const unsigned char*>(data), bytes, sum);
  cuda_check(cudaGetLastError(), "digest kernel");
}

void take_returned_cuda(const ReturnedTensor& t, cudaStream_t stream) {
  if (returned_elements(t) == 0) return;
  switch (dtype_size(t.dtype)) {
    case 4:
      return take_returned<uint32_t>(t, stream);
    case 2:
      return take_returned<uint16_t>(t, stream);
    default:
      return take_returned<uint8_t>(t, stream);
  }
}

}  // namespace attnbench
