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

/// Says that this rank has come to `place`. All that the stream did before can be read by those who hear it.
__device__ void come(const Meeting& m, MeetingPlace place, uint32_t launch) {
  const auto other = static_cast<int32_t>(threadIdx.x);
  if (other < m.ranks) tell(&m.words[other]->come[place][m.rank], launch);
}

/// Waits until rank `other` has come to `place`.
__device__ void wait_for_rank(const Meeting& m, MeetingPlace place, int32_t other, uint32_t launch) {
  MeetingWords* own = m.words[m.rank];
  const unsigned long long begin = global_time();
  while (static_cast<int32_t>(listen(&own->come[place][other]) - launch) < 0) {
    if (global_time() - begin < kMeetingNs) continue;
    own->missing = static_cast<uint32_t>(other) + 1;
    return;
  }
}

/// All threads of the block wait until all ranks have come to `place`.
__device__ void wait_for_all_ranks(const Meeting& m, MeetingPlace place, uint32_t launch) {
  const auto other = static_cast<int32_t>(threadIdx.x);
  if (other < m.ranks && other != m.rank) wait_for_rank(m, place, other, launch);
  __syncthreads();
}

__device__ uint32_t launch_number(const Meeting& m) {
  return *static_cast<volatile uint32_t*>(&m.words[m.rank]->launch);
}

/// The ranks meet twice. Between the two meetings a rank waits for a word that the others send when they leave the
/// first one: the time of its way, and what they are behind. So the longest wait of all ranks bounds how far apart
/// they leave.
__global__ void __launch_bounds__(kRankThreads) meet_kernel(const Meeting m) {
  const uint32_t launch = launch_number(m) + 1;
  MeetingWords* own = m.words[m.rank];
  __syncthreads();  // all threads have read the number
  if (threadIdx.x == 0) own->launch = launch;
  come(m, kAtStart, launch);
  wait_for_all_ranks(m, kAtStart, launch);
  const unsigned long long begin = global_time();
  const auto other = static_cast<int32_t>(threadIdx.x);
  if (other < m.ranks)  // orders nothing, so it need not wait for what was written
    *static_cast<volatile uint32_t*>(&m.words[other]->come[kAtStartAgain][m.rank]) = launch;
  wait_for_all_ranks(m, kAtStartAgain, launch);
  if (threadIdx.x != 0) return;
  const unsigned long long end = global_time();
  own->heard_ns = static_cast<uint32_t>(end - begin);
  own->started_ns = end;
}

/// Blocks (x, r) read from rank r, and wait for it alone.
template <class Word>
__global__ void __launch_bounds__(kRankThreads) gather_kernel(const Gathering g, const Meeting m) {
  const uint32_t launch = launch_number(m);
  const auto rank = static_cast<int32_t>(blockIdx.y);
  if (blockIdx.x == 0 && blockIdx.y == 0) come(m, kAtQueries, launch);
  if (rank != m.rank) {
    if (threadIdx.x == 0) wait_for_rank(m, kAtQueries, rank, launch);
    __syncthreads();
  }
  const int64_t each = g.bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRankThreads;
  const auto* from = static_cast<const Word*>(g.from[rank]);
  auto* to = static_cast<Word*>(g.to) + rank * each;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRankThreads + threadIdx.x; i < each; i += stride)
    to[i] = from[i];
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

/// Rows of a launch: a block has `rows` of them at a time, and `lanes` threads for each. A row may have more
/// pieces than lanes.
struct Rows {
  int32_t pieces, lanes, rows;
  __host__ __device__ Rows(int32_t dim, int32_t count)
      : pieces(dim / count),
        lanes(pieces < kRankThreads ? pieces : kRankThreads),
        rows(kRankThreads / lanes) {}
};

/// Calls `piece_of(row, piece)` for what this thread has of `count` rows, without a division of 64 bits.
template <class Function>
__device__ void for_pieces(const Rows& of, int64_t count, const Function& piece_of) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t own = thread / of.lanes;
  if (own >= of.rows) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * of.rows;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * of.rows + own; row < count; row += stride) {
    for (int32_t piece = thread - own * of.lanes; piece < of.pieces; piece += of.lanes) piece_of(row, piece);
  }
}

/// A thread merges `kCount` channels of a row. All that it reads of other GPUs is on its way at once.
template <DType kType, int kCount, int kStates>
__global__ void __launch_bounds__(kRankThreads)
    merge_kernel(const Merging m, const Meeting meeting, bool meets) {
  using Piece = Channels<kType, kCount>;
  if (meets) {
    const uint32_t launch = launch_number(meeting);  // set long before the kernel that precedes this one
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();  // this rank's state is complete
#endif
    if (blockIdx.x == 0) {
      if (threadIdx.x == 0) meeting.words[meeting.rank]->merging_ns = global_time();
      come(meeting, kAtStates, launch);
    }
    wait_for_all_ranks(meeting, kAtStates, launch);
  }
  const Rows of(m.dim, kCount);
  for_pieces(of, m.rows, [&](int64_t row, int32_t p) {
    const int64_t at = row * of.pieces + p;
    float weight[kStates] = {};
    Piece piece[kStates];
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (s >= m.states) continue;
      weight[s] = m.lse[s][row];
      piece[s] = static_cast<const Piece*>(m.out[s])[at];
    }
    const float lse = weights_of(weight, m.states);
    if (p == 0) m.to_lse[row] = lse;
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
    static_cast<Piece*>(m.to)[at] = to;
  });
}

template <DType kType, int kCount, int kStates>
__global__ void __launch_bounds__(kRankThreads) correct_kernel(const Correcting c) {
  using Piece = Channels<kType, kCount>;
  const Rows of(c.dim, kCount);
  for_pieces(of, c.rows, [&](int64_t row, int32_t p) {
    const int64_t at = row * of.pieces + p;
    float weight[kStates] = {};
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (s < c.ranks) weight[s] = c.lse[s * c.rows + row];
    }
    const Piece piece = static_cast<const Piece*>(c.out)[at];
    const float lse = weights_of(weight, c.ranks);
    if (p == 0) c.to_lse[row] = lse;
    float own = 0;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      if (s == c.rank) own = weight[s];
    }
    Piece to;
#pragma unroll
    for (int k = 0; k < kCount; ++k) to.x[k] = from_float<kType>(weighted(own, to_float<kType>(piece.x[k])));
    static_cast<Piece*>(c.to)[at] = to;
  });
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

/// Calls `launch` with the type, the number of channels (16 bytes, or one channel if a row has no whole number of
/// these) and the most states as constants.
template <class Launch>
void with_constants(DType dtype, int32_t dim, int32_t states, const Launch& launch) {
  const auto of_states = [&](auto type, auto count) {
    if (states <= 2) return launch(type, count, std::integral_constant<int, 2>());
    if (states <= 4) return launch(type, count, std::integral_constant<int, 4>());
    launch(type, count, std::integral_constant<int, kMostRanks>());
  };
  const auto of_type = [&](auto type) {
    constexpr int kWide = 16 / static_cast<int>(dtype_size(decltype(type)::value));
    if (dim % kWide == 0) {
      of_states(type, std::integral_constant<int, kWide>());
    } else {
      of_states(type, std::integral_constant<int, 1>());
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
  int major = 0;
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
             "cudaDeviceGetAttribute");
  early_ = major >= 9;
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
  meet_kernel<<<1, 32, 0, stream_>>>(m);
  cuda_check(cudaGetLastError(), "meet kernel");
}

void CudaRankStream::gather(const Gathering& g, const Meeting& m) {
  make_current();
  const auto launch = [&](auto kernel, int64_t words) {
    const dim3 blocks(std::max(1u, blocks_for(words) / static_cast<unsigned>(g.ranks)),
                      static_cast<unsigned>(g.ranks));
    kernel<<<blocks, kRankThreads, 0, stream_>>>(g, m);
  };
  if (g.bytes % 16 == 0) {
    launch(gather_kernel<uint4>, g.bytes / 16 * g.ranks);
  } else {
    launch(gather_kernel<uint8_t>, g.bytes * g.ranks);
  }
  cuda_check(cudaGetLastError(), "gather kernel");
}

unsigned CudaRankStream::blocks_for_rows(int64_t rows, int32_t dim, int32_t count) const {
  const int32_t at_once = Rows(dim, count).rows;
  return blocks_for((rows + at_once - 1) / at_once * kRankThreads);
}

void CudaRankStream::merge(const Merging& m, const Meeting* meeting) {
  make_current();
  cudaLaunchAttribute early{};  // the kernel waits in cudaGridDependencySynchronize
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  with_constants(m.dtype, m.dim, m.states, [&](auto type, auto count, auto states) {
    constexpr int kCount = decltype(count)::value;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks_for_rows(m.rows, m.dim, kCount);
    config.blockDim = kRankThreads;
    config.stream = stream_;
    config.attrs = &early;
    config.numAttrs = meeting != nullptr && early_ ? 1 : 0;
    const auto kernel = merge_kernel<decltype(type)::value, kCount, decltype(states)::value>;
    cuda_check(
        cudaLaunchKernelEx(&config, kernel, m, meeting != nullptr ? *meeting : Meeting{}, meeting != nullptr),
        "merge kernel");
  });
}

void CudaRankStream::correct(const Correcting& c) {
  make_current();
  with_constants(c.dtype, c.dim, c.ranks, [&](auto type, auto count, auto states) {
    constexpr int kCount = decltype(count)::value;
    correct_kernel<decltype(type)::value, kCount, decltype(states)::value>
        <<<blocks_for_rows(c.rows, c.dim, kCount), kRankThreads, 0, stream_>>>(c);
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
