#include "harness/device/cuda/signs.h"

#include <algorithm>

#include "harness/device/cuda/cuda_check.h"

namespace attnbench {
namespace {

constexpr int kSignThreads = 256;

unsigned blocks_for(int64_t items, int64_t most) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kSignThreads - 1) / kSignThreads, 1, most));
}

/// One thread per word of 8 bytes. Words without a changed sign are not touched.
template <class Bits, class Index>
__global__ void __launch_bounds__(kSignThreads) change_kernel(const SignedTensor t) {
  constexpr int kPerWord = 8 / static_cast<int>(sizeof(Bits));
  const auto elements = static_cast<Index>(t.elements);
  const Index words = (elements + (kPerWord - 1)) / kPerWord, stride = gridDim.x * kSignThreads;
  auto* data = static_cast<Bits*>(t.data);
  for (Index w = blockIdx.x * kSignThreads + threadIdx.x; w < words; w += stride) {
    const Index e = w * kPerWord;
    Index row = e / static_cast<Index>(t.dim);
    auto c = static_cast<int32_t>(e - row * static_cast<Index>(t.dim));
    const uint8_t* signs = signs_of_row(t, row);
    uint64_t change = 0;
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      if (e + i >= elements) break;
      if (signs[c] != 0) change |= uint64_t{1} << (8 * sizeof(Bits) * (i + 1) - 1);
      if (++c == t.dim) {
        c = 0;
        signs = signs_of_row(t, ++row);
      }
    }
    if (change == 0) continue;
    const bool whole = e + kPerWord <= elements && reinterpret_cast<uintptr_t>(data) % 8 == 0;
    if (whole && t.dtype != DType::kInt8) {
      reinterpret_cast<uint64_t*>(data)[w] ^= change;
      continue;
    }
    for (int i = 0; i < kPerWord && e + i < elements; ++i) {
      if ((change >> (8 * sizeof(Bits) * (i + 1) - 1) & 1) != 0)
        data[e + i] = static_cast<Bits>(negated(t.dtype, data[e + i]));
    }
  }
}

template <class Bits, class Index>
__global__ void __launch_bounds__(kSignThreads)
    unsigned_digest_kernel(const SignedTensor t, uint64_t first, uint64_t factor, unsigned long long* sum,
                           unsigned long long* clock) {
  if (clock != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    unsigned long long now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    *clock = now;
  }
  constexpr int kPerWord = 8 / static_cast<int>(sizeof(Bits));
  const Index words = (static_cast<Index>(t.elements) + (kPerWord - 1)) / kPerWord;
  const auto start = static_cast<Index>(first % words);
  const Index stride = gridDim.x * kSignThreads;
  uint64_t mine = 0;
  for (Index i = blockIdx.x * kSignThreads + threadIdx.x; i < words; i += stride) {
    const Index w = i < words - start ? i + start : i - (words - start);
    mine += digest_word(unsigned_word<Bits>(t, w), w);
  }
  for (int lane = 16; lane > 0; lane /= 2) mine += __shfl_down_sync(0xffffffffu, mine, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(mine * factor));
}

template <class Bits>
__global__ void __launch_bounds__(kSignThreads) poison_kernel(const WatchedOutput o) {
  const int64_t count = written_elements(o);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kSignThreads;
  auto* data = static_cast<Bits*>(o.tensor.data);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kSignThreads + threadIdx.x; i < count; i += stride) {
    data[written_element(o, i)] = static_cast<Bits>(poison_bits(o.tensor.dtype));
  }
}

}  // namespace

void change_signs_cuda(const SignedTensor& t, cudaStream_t stream) {
  if (t.table == nullptr || t.elements == 0) return;
  with_bits(t.dtype, [&](auto bits) {
    const int64_t words = (t.elements * static_cast<int64_t>(sizeof bits) + 7) / 8;
    const unsigned grid = blocks_for(words, 1 << 13);
    if (is_short(t)) {
      change_kernel<decltype(bits), uint32_t><<<grid, kSignThreads, 0, stream>>>(t);
    } else {
      change_kernel<decltype(bits), uint64_t><<<grid, kSignThreads, 0, stream>>>(t);
    }
  });
  cuda_check(cudaGetLastError(), "sign kernel");
}

void unsigned_digest_cuda(const SignedTensor& t, uint64_t first, uint64_t factor, unsigned long long* sum,
                          unsigned long long* clock, cudaStream_t stream) {
  if (t.elements == 0) return;
  with_bits(t.dtype, [&](auto bits) {
    const int64_t words = (t.elements * static_cast<int64_t>(sizeof bits) + 7) / 8;
    const unsigned grid = blocks_for(words, 1 << 13);
    if (is_short(t)) {
      unsigned_digest_kernel<decltype(bits), uint32_t>
          <<<grid, kSignThreads, 0, stream>>>(t, first, factor, sum, clock);
    } else {
      unsigned_digest_kernel<decltype(bits), uint64_t>
          <<<grid, kSignThreads, 0, stream>>>(t, first, factor, sum, clock);
    }
  });
  cuda_check(cudaGetLastError(), "digest kernel");
}

void poison_cuda(const WatchedOutput& o, cudaStream_t stream) {
  if (written_elements(o) == 0) return;
  with_bits(o.tensor.dtype, [&](auto bits) {
    poison_kernel<decltype(bits)><<<blocks_for(written_elements(o), 1 << 16), kSignThreads, 0, stream>>>(o);
  });
  cuda_check(cudaGetLastError(), "poison kernel");
}

}  // namespace attnbench
