#include "harness/device/cuda/signs.h"

#include <algorithm>

#include "harness/device/cuda/block_sum.cuh"
#include "harness/device/cuda/clock.cuh"
#include "harness/device/cuda/cuda_check.h"

namespace attnbench {
namespace {

constexpr int kSignThreads = 256;
constexpr unsigned kSignBlocks = 1024;  ///< several on each multiprocessor

unsigned blocks_for(int64_t items, int64_t most = 1 << 30) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kSignThreads - 1) / kSignThreads, 1, most));
}

/// Words after which rows of the table and channels repeat.
template <class Bits>
int64_t period_of(const SignedTensor& t) {
  return t.table == nullptr ? 1
                            : int64_t{t.heads} * t.head_rows * t.dim * static_cast<int64_t>(sizeof(Bits)) / 8;
}

/// Threads for a tensor of whole words, a multiple of its period: a thread's words, so many apart, have the
/// same signs, which it looks up once.
template <class Bits>
int64_t lanes_of(const SignedTensor& t, int64_t words) {
  const int64_t period = period_of<Bits>(t);
  const int64_t periods = (words + period - 1) / period;
  return period * std::clamp<int64_t>(int64_t{kSignBlocks} * kSignThreads / period, 1, periods);
}

/// Words without a changed sign are not touched. Needs has_whole_words(), and floats.
template <class Bits>
__global__ void __launch_bounds__(kSignThreads) change_words_kernel(const SignedTensor t, int64_t lanes) {
  const int64_t lane = static_cast<int64_t>(blockIdx.x) * kSignThreads + threadIdx.x;
  const int64_t words = t.elements * static_cast<int64_t>(sizeof(Bits)) / 8;
  if (lane >= min(lanes, words)) return;
  const uint64_t signs = signs_of_word<Bits>(t, static_cast<uint64_t>(lane));
  if (signs == 0) return;
  uint64_t change = 0;
  for (int i = 0; i < 8 / static_cast<int>(sizeof(Bits)); ++i) {
    if ((signs >> (8 * i) & 0xff) != 0) change |= uint64_t{1} << (8 * sizeof(Bits) * (i + 1) - 1);
  }
  auto* data = static_cast<uint64_t*>(t.data);
  for (int64_t w = lane; w < words; w += lanes) data[w] ^= change;
}

__device__ void read_clock(unsigned long long* clock) {
  if (clock == nullptr || blockIdx.x != 0 || threadIdx.x != 0) return;
  *clock = global_time();
}

/// Needs has_whole_words().
template <class Bits>
__global__ void __launch_bounds__(kSignThreads)
    digest_words_kernel(const SignedTensor t, int64_t lanes, uint64_t first, uint64_t factor,
                        unsigned long long* sum, unsigned long long* clock) {
  read_clock(clock);
  const int64_t lane = static_cast<int64_t>(blockIdx.x) * kSignThreads + threadIdx.x;
  const int64_t words = t.elements * static_cast<int64_t>(sizeof(Bits)) / 8;
  const auto* data = static_cast<const uint64_t*>(t.data);
  const int64_t turns = (words + lanes - 1) / lanes;
  int64_t turn = static_cast<int64_t>(first % static_cast<uint64_t>(turns));
  uint64_t mine = 0;
  if (lane < min(lanes, words)) {
    const uint64_t signs = t.table == nullptr ? 0 : signs_of_word<Bits>(t, static_cast<uint64_t>(lane));
    for (int64_t i = 0; i < turns; ++i) {
      const int64_t w = lane + turn * lanes;
      if (w < words)
        mine += digest_word(without_signs<Bits>(t.dtype, data[w], signs), static_cast<uint64_t>(w));
      turn = turn + 1 < turns ? turn + 1 : 0;
    }
  }
  add_of_block<kSignThreads>(mine * factor, sum);
}

/// One thread per word of 8 bytes. Words without a changed sign are not touched.
template <class Bits, class Index>
__global__ void __launch_bounds__(kSignThreads) change_kernel(const SignedTensor t) {
  constexpr int kPerWord = 8 / static_cast<int>(sizeof(Bits));
  const auto elements = static_cast<Index>(t.elements);
  const Index words = (elements + (kPerWord - 1)) / kPerWord, stride = gridDim.x * kSignThreads;
  auto* data = static_cast<Bits*>(t.data);
  const uint64_t sign_bits = t.dtype == DType::kE2m1x2 ? 0x88 : uint64_t{1} << (8 * sizeof(Bits) - 1);
  for (Index w = blockIdx.x * kSignThreads + threadIdx.x; w < words; w += stride) {
    const Index e = w * kPerWord;
    Index row = e / static_cast<Index>(t.dim);
    auto c = static_cast<int32_t>(e - row * static_cast<Index>(t.dim));
    const uint8_t* signs = signs_of_row(t, row);
    uint64_t change = 0;
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      if (e + i >= elements) break;
      if (signs[sign_entry(t, c)] != 0) change |= sign_bits << (8 * sizeof(Bits) * i);
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
  read_clock(clock);
  constexpr int kPerWord = 8 / static_cast<int>(sizeof(Bits));
  const Index words = (static_cast<Index>(t.elements) + (kPerWord - 1)) / kPerWord;
  const auto start = static_cast<Index>(first % words);
  const Index stride = gridDim.x * kSignThreads;
  uint64_t mine = 0;
  for (Index i = blockIdx.x * kSignThreads + threadIdx.x; i < words; i += stride) {
    const Index w = i < words - start ? i + start : i - (words - start);
    mine += digest_word(unsigned_word<Bits>(t, w), w);
  }
  add_of_block<kSignThreads>(mine * factor, sum);
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
    if (t.dtype != DType::kInt8 && has_whole_words<decltype(bits)>(t)) {
      const int64_t lanes = lanes_of<decltype(bits)>(t, words);
      change_words_kernel<decltype(bits)><<<blocks_for(lanes), kSignThreads, 0, stream>>>(t, lanes);
      return;
    }
    const unsigned grid = blocks_for(words, kSignBlocks);
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
    if (has_whole_words<decltype(bits)>(t)) {
      const int64_t lanes = lanes_of<decltype(bits)>(t, words);
      digest_words_kernel<decltype(bits)>
          <<<blocks_for(lanes), kSignThreads, 0, stream>>>(t, lanes, first, factor, sum, clock);
      return;
    }
    const unsigned grid = blocks_for(words, kSignBlocks);
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
  const int64_t count = written_elements(o);
  if (count == 0) return;
  if (o.tokens == nullptr) {  // all bytes of poison are equal
    const auto bytes = static_cast<std::size_t>(count) * dtype_size(o.tensor.dtype);
    const auto byte = static_cast<int>(poison_bits(o.tensor.dtype) & 0xff);
    cuda_check(cudaMemsetAsync(o.tensor.data, byte, bytes, stream), "poison");
    return;
  }
  with_bits(o.tensor.dtype, [&](auto bits) {
    poison_kernel<decltype(bits)><<<blocks_for(count, 1 << 16), kSignThreads, 0, stream>>>(o);
  });
  cuda_check(cudaGetLastError(), "poison kernel");
}

}  // namespace attnbench
