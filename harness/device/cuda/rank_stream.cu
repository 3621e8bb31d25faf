#include "harness/device/cuda/rank_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "harness/device/cuda/clock.cuh"
#include "harness/device/cuda/cuda_check.h"
#include "harness/device/cuda/fill.h"

namespace attnbench {
namespace {

constexpr int kRankThreads = 256;

// Flags go through the system: they order what other GPUs read. A kernel that has ended has written its results
// to this GPU's L2 cache, where peers read them; no cache of a reader keeps them from one kernel to the next.
__device__ void tell(uint32_t* word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ uint32_t listen(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

/// All blocks of the kernel call this first. Block 0 says that this rank has come; every block waits for all
/// ranks. Returns the number of the meeting for leave().
__device__ uint32_t come(const Meeting& m) {
  __shared__ uint32_t turn;
  MeetingWords* own = m.words[m.rank];
  if (threadIdx.x == 0) turn = *static_cast<volatile uint32_t*>(&own->turn) + 1;
  __syncthreads();
  const auto other = static_cast<int32_t>(threadIdx.x);
  if (other < m.ranks) {
    if (blockIdx.x == 0) {
      __threadfence_system();
      tell(&m.words[other]->come[m.rank], turn);
    }
    const unsigned long long begin = global_time();
    while (static_cast<int32_t>(listen(&own->come[other]) - turn) < 0) {
      if (global_time() - begin < kMeetingNs) continue;
      own->missing = static_cast<uint32_t>(other) + 1;
      break;
    }
  }
  __syncthreads();
  return turn;
}

/// The last block to leave ends the meeting.
__device__ void leave(const Meeting& m, uint32_t turn) {
  if (threadIdx.x != 0) return;
  MeetingWords* own = m.words[m.rank];
  if (atomicAdd(&own->blocks, 1u) + 1 < gridDim.x) return;
  own->blocks = 0;
  *static_cast<volatile uint32_t*>(&own->turn) = turn;
}

__global__ void __launch_bounds__(kRankThreads) meet_kernel(const Meeting m) {
  const unsigned long long begin = global_time();
  const uint32_t turn = come(m);
  if (threadIdx.x == 0) m.words[m.rank]->waited_ns = static_cast<uint32_t>(global_time() - begin);
  leave(m, turn);
}

template <class Word>
__global__ void __launch_bounds__(kRankThreads) gather_kernel(const Gathering g, const Meeting m) {
  const uint32_t turn = come(m);
  const int64_t each = g.bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRankThreads;
  auto* to = static_cast<Word*>(g.to);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x; i < each * g.ranks;
       i += stride) {
    const auto rank = static_cast<int32_t>(i / each);
    to[i] = static_cast<const Word*>(g.from[rank])[i - rank * each];
  }
  leave(m, turn);
}

template <DType kType>
struct Stored {
  using type = uint16_t;
};
template <>
struct Stored<DType::kFp32> {
  using type = uint32_t;
};

template <DType kType>
__device__ float to_float(typename Stored<kType>::type x) {
  if constexpr (kType == DType::kBf16) return bf16_to_float(x);
  if constexpr (kType == DType::kFp16) return fp16_to_float(x);
  if constexpr (kType == DType::kFp32) return bits_float(x);
}
template <DType kType>
__device__ typename Stored<kType>::type from_float(float x) {
  if constexpr (kType == DType::kBf16) return float_to_bf16(x);
  if constexpr (kType == DType::kFp16) return float_to_fp16(x);
  if constexpr (kType == DType::kFp32) return float_bits(x);
}

/// Channels that a thread reads at once.
template <DType kType, int kCount>
struct alignas(sizeof(typename Stored<kType>::type) * kCount) Channels {
  typename Stored<kType>::type x[kCount];
};

/// A thread merges `kCount` channels of a row. All that it reads of other GPUs is on its way at once.
template <DType kType, int kCount, int kStates>
__global__ void __launch_bounds__(kRankThreads)
    merge_kernel(const Merging m, const Meeting meeting, bool meets) {
  using Piece = Channels<kType, kCount>;
  const uint32_t turn = meets ? come(meeting) : 0;
  const int64_t per_row = m.dim / kCount;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRankThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x; i < m.rows * per_row;
       i += stride) {
    const int64_t row = i / per_row;
    float weight[kMostRanks];
    Piece piece[kStates];
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (s >= m.states) break;
      weight[s] = m.lse[s][row];
      piece[s] = static_cast<const Piece*>(m.out[s])[i];
    }
    const float lse = weights_of(weight, m.states);
    if (i == row * per_row) m.to_lse[row] = lse;
    Piece to;
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        if (s < m.states) sum += weighted(weight[s], to_float<kType>(piece[s].x[c]));
      }
      to.x[c] = from_float<kType>(sum);
    }
    static_cast<Piece*>(m.to)[i] = to;
  }
  if (meets) leave(meeting, turn);
}

template <DType kType, int kCount>
__global__ void __launch_bounds__(kRankThreads) correct_kernel(const Correcting c) {
  using Piece = Channels<kType, kCount>;
  const int64_t per_row = c.dim / kCount;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRankThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x; i < c.rows * per_row;
       i += stride) {
    const int64_t row = i / per_row;
    float weight[kMostRanks];
    for (int32_t s = 0; s < c.ranks; ++s) weight[s] = c.lse[s * c.rows + row];
    const Piece piece = static_cast<const Piece*>(c.out)[i];
    const float lse = weights_of(weight, c.ranks);
    if (i == row * per_row) c.to_lse[row] = lse;
    Piece to;
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      to.x[k] = from_float<kType>(weighted(weight[c.rank], to_float<kType>(piece.x[k])));
    static_cast<Piece*>(c.to)[i] = to;
  }
}

template <class Bits>
__global__ void __launch_bounds__(kRankThreads) copy_kernel(const ReturnedTensor t) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRankThreads;
  const auto* from = static_cast<const Bits*>(t.from.data);
  auto* to = static_cast<Bits*>(t.to.data);
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x; e < returned_elements(t);
       e += stride)
    to[returned_offset(t, t.to, e)] = from[returned_offset(t, t.from, e)];
}

/// Calls `launch` with the type and the number of channels as constants: 16 bytes, or one channel if a row has
/// no whole number of these.
template <class Launch>
void with_channels(DType dtype, int32_t dim, const Launch& launch) {
  const auto of_type = [&](auto type) {
    constexpr DType kType = decltype(type)::value;
    constexpr int kWide = 16 / static_cast<int>(dtype_size(kType));
    if (dim % kWide == 0) {
      launch(type, std::integral_constant<int, kWide>());
    } else {
      launch(type, std::integral_constant<int, 1>());
    }
  };
  switch (dtype) {
    case DType::kBf16:
      return of_type(std::integral_constant<DType, DType::kBf16>());
    case DType::kFp16:
      return of_type(std::integral_constant<DType, DType::kFp16>());
    default:
      return of_type(std::integral_constant<DType, DType::kFp32>());
  }
}

}  // namespace

CudaRankStream::CudaRankStream(int ordinal, cudaStream_t stream, int multiprocessors, LaunchTimer& timer)
    : ordinal_(ordinal), stream_(stream), multiprocessors_(multiprocessors), timer_(timer) {
  make_current();
  cuda_check(cudaEventCreateWithFlags(&order_, cudaEventDisableTiming), "cudaEventCreate");
  for (cudaEvent_t& e : marks_) cuda_check(cudaEventCreate(&e), "cudaEventCreate");
}

CudaRankStream::~CudaRankStream() {
  cudaSetDevice(ordinal_);
  if (order_ != nullptr) cudaEventDestroy(order_);
  for (const cudaEvent_t e : marks_) {
    if (e != nullptr) cudaEventDestroy(e);
  }
}

void CudaRankStream::make_current() { cuda_check(cudaSetDevice(ordinal_), "cudaSetDevice"); }

void CudaRankStream::wait_for(RankStream& other) {
  auto& from = dynamic_cast<CudaRankStream&>(other);
  from.make_current();
  cuda_check(cudaEventRecord(from.order_, from.stream_), "cudaEventRecord");
  make_current();
  cuda_check(cudaStreamWaitEvent(stream_, from.order_, 0), "cudaStreamWaitEvent");
}

void CudaRankStream::mark(int at) {
  make_current();
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream_, &capture), "cudaStreamIsCapturing");
  const unsigned how =
      capture == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
  cuda_check(cudaEventRecordWithFlags(marks_.at(static_cast<std::size_t>(at)), stream_, how),
             "cudaEventRecord");
}

bool CudaRankStream::reached(int at) {
  const cudaError_t now = cudaEventQuery(marks_.at(static_cast<std::size_t>(at)));
  if (now == cudaErrorNotReady) return false;
  cuda_check(now, "launch on several GPUs");
  return true;
}

double CudaRankStream::us_between(int from, int to) {
  make_current();
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, marks_.at(static_cast<std::size_t>(from)),
                                  marks_.at(static_cast<std::size_t>(to))),
             "cudaEventElapsedTime");
  return 1e3 * static_cast<double>(ms);
}

void CudaRankStream::empty_caches(CacheMode cache) {
  make_current();
  timer_.empty_caches(cache);
}

void CudaRankStream::poison(void* data, int64_t bytes) {
  if (bytes <= 0) return;
  make_current();
  cuda_check(cudaMemsetAsync(data, 0xff, static_cast<std::size_t>(bytes), stream_), "cudaMemsetAsync");
}

unsigned CudaRankStream::blocks_for(int64_t items) const {
  const int64_t blocks = (items + kRankThreads - 1) / kRankThreads;
  return static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, 4 * multiprocessors_));
}

void CudaRankStream::copy(const ReturnedTensor& t) {
  if (returned_elements(t) == 0) return;
  make_current();
  const unsigned blocks = blocks_for(returned_elements(t));
  switch (dtype_size(t.dtype)) {
    case 4:
      copy_kernel<uint32_t><<<blocks, kRankThreads, 0, stream_>>>(t);
      break;
    case 2:
      copy_kernel<uint16_t><<<blocks, kRankThreads, 0, stream_>>>(t);
      break;
    default:
      copy_kernel<uint8_t><<<blocks, kRankThreads, 0, stream_>>>(t);
  }
  cuda_check(cudaGetLastError(), "copy kernel");
}

void CudaRankStream::meet(const Meeting& m) {
  make_current();
  meet_kernel<<<1, kRankThreads, 0, stream_>>>(m);
  cuda_check(cudaGetLastError(), "meet kernel");
}

void CudaRankStream::gather(const Gathering& g, const Meeting& m) {
  make_current();
  if (g.bytes % 16 == 0) {
    gather_kernel<uint4><<<blocks_for(g.bytes / 16 * g.ranks), kRankThreads, 0, stream_>>>(g, m);
  } else {
    gather_kernel<uint8_t><<<blocks_for(g.bytes * g.ranks), kRankThreads, 0, stream_>>>(g, m);
  }
  cuda_check(cudaGetLastError(), "gather kernel");
}

void CudaRankStream::merge(const Merging& m, const Meeting* meeting) {
  make_current();
  with_channels(m.dtype, m.dim, [&](auto type, auto count) {
    constexpr DType kType = decltype(type)::value;
    constexpr int kCount = decltype(count)::value;
    const unsigned blocks = blocks_for(m.rows * m.dim / kCount);
    const Meeting at = meeting != nullptr ? *meeting : Meeting{};
    const auto launch = [&](auto kernel) {
      kernel<<<blocks, kRankThreads, 0, stream_>>>(m, at, meeting != nullptr);
    };
    if (m.states <= 2) {
      launch(merge_kernel<kType, kCount, 2>);
    } else if (m.states <= 4) {
      launch(merge_kernel<kType, kCount, 4>);
    } else {
      launch(merge_kernel<kType, kCount, kMostRanks>);
    }
  });
  cuda_check(cudaGetLastError(), "merge kernel");
}

void CudaRankStream::correct(const Correcting& c) {
  make_current();
  with_channels(c.dtype, c.dim, [&](auto type, auto count) {
    constexpr DType kType = decltype(type)::value;
    constexpr int kCount = decltype(count)::value;
    correct_kernel<kType, kCount><<<blocks_for(c.rows * c.dim / kCount), kRankThreads, 0, stream_>>>(c);
  });
  cuda_check(cudaGetLastError(), "correct kernel");
}

void CudaRankStream::give_up(const std::string& why) {
  std::fprintf(stderr, "attnbench: error: %s\n", why.c_str());
  std::fflush(nullptr);
  _exit(1);
}

bool enable_peer_access(int ordinal, int peer) {
  int can = 0;
  cuda_check(cudaDeviceCanAccessPeer(&can, ordinal, peer), "cudaDeviceCanAccessPeer");
  if (can == 0) return false;
  cuda_check(cudaSetDevice(ordinal), "cudaSetDevice");
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
  } else {
    cuda_check(error, "cudaDeviceEnablePeerAccess");
  }
  return true;
}

}  // namespace attnbench
