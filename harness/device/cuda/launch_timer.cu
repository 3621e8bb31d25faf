#include "harness/device/cuda/launch_timer.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "harness/device/cuda/clock.cuh"
#include "harness/device/cuda/code_cache.h"
#include "harness/device/cuda/cuda_check.h"
#include "harness/device/cuda/signs.h"

namespace attnbench {

/// What the GPU saw of a watched launch. Clocks are in ns.
struct LaunchTimer::Watched {
  unsigned long long early, at_end, when_idle, clock_begin, clock_end;
  unsigned arrived;  ///< of the blocks that wait for each other
};

namespace {

constexpr double kMinSpinUs = 30;
constexpr double kMaxSpinUs = 2000;
// Time that the spin continues after it has told the host that it ends. It is longer than the message takes
// over PCIe and than the GPU takes to fetch commands that the host has just enqueued.
constexpr double kSpinTailUs = 5;

// Caches that the flush reads. After two, lines that were written before are still in the cache of an H100 and
// slow down a launch that is bound by memory; after four, they are not.
constexpr int64_t kFlushedCaches = 4;

constexpr int kReadThreads = 512;
constexpr int kReadBlocksPerSm = 2;
constexpr int kReadUnroll = 8;  ///< 16-byte loads in flight per thread

/// Reads data[own], data[own + stride], ... up to data[count], kUnroll loads of a thread in flight.
template <int kUnroll>
__device__ void read_all(const uint4* data, int64_t count, int64_t own, int64_t stride, unsigned* sink) {
  int64_t i = own;
  unsigned sum = 0;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = __ldcg(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  for (; i < count; i += stride) {
    const uint4 v = __ldcg(data + i);
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x7fb5d329u) *sink = sum;  // never true for the uniform bytes in these buffers
}

__global__ void __launch_bounds__(kReadThreads, kReadBlocksPerSm)
    read_kernel(const uint4* data, int64_t count, unsigned* sink) {
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kReadThreads + threadIdx.x;
  read_all<kReadUnroll>(data, count, own, static_cast<int64_t>(gridDim.x) * kReadThreads, sink);
}

__global__ void __launch_bounds__(kReadThreads, kReadBlocksPerSm)
    reread_kernel(const uint4* data, int64_t count, int passes, unsigned* sink) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kReadThreads;
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kReadThreads + threadIdx.x;
  unsigned sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    int64_t begin = own + pass * (stride / 2 + 32);  // in the pass before, other blocks read this part
    begin -= begin / count * count;
    int64_t done = 0;
    for (; done + (kReadUnroll - 1) * stride < count - own; done += kReadUnroll * stride) {
      uint4 v[kReadUnroll];
#pragma unroll
      for (int u = 0; u < kReadUnroll; ++u) {
        int64_t i = begin + done + u * stride;
        if (i >= count) i -= count;
        v[u] = __ldcg(data + i);
      }
#pragma unroll
      for (int u = 0; u < kReadUnroll; ++u) sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
    }
    for (; done < count - own; done += stride) {
      int64_t i = begin + done;
      if (i >= count) i -= count;
      const uint4 v = __ldcg(data + i);
      sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (sum == 0x7fb5d329u) *sink = sum;
}

/// Whether the last-level cache is emptied.
bool is_cold(CacheMode cache) { return cache == CacheMode::kCold || cache == CacheMode::kColdData; }

constexpr int kReadyThreads = 512;
constexpr int kReadyUnroll = 2;
constexpr int kMostOutputs = 8;
constexpr int kMostLate = 4;

/// What happens on the GPU before a launch.
struct Ready {
  LateSigns late[kMostLate];
  int num_late = 0;
  const uint4* flush = nullptr;  ///< read, to empty the L2 cache
  int64_t flush_count = 0;
  long long spin_cycles = 0, tail_cycles = 0;
  volatile unsigned* told = nullptr;  ///< host memory: gets `ticket` when the spin ends
  unsigned ticket = 0;
  WatchedOutput outputs[kMostOutputs];
  int num_outputs = 0;
  uint64_t seed = 0;
  unsigned* arrived = nullptr;  ///< blocks that wait; 0 before
  unsigned* sink = nullptr;
  unsigned long long* early = nullptr;  ///< probes that do not hold poison
  unsigned long long* clock = nullptr;
};

__device__ uint32_t element_bits(const SignedTensor& t, int64_t e) {
  switch (dtype_size(t.dtype)) {
    case 1:
      return static_cast<const volatile uint8_t*>(t.data)[e];
    case 2:
      return static_cast<const volatile uint16_t*>(t.data)[e];
    default:
      return static_cast<const volatile uint32_t*>(t.data)[e];
  }
}

__device__ void negate_element(const SignedTensor& t, int64_t e) {
  switch (dtype_size(t.dtype)) {
    case 1: {
      auto* at = static_cast<uint8_t*>(t.data) + e;
      *at = static_cast<uint8_t>(negated(t.dtype, *at));
      return;
    }
    case 2: {
      auto* at = static_cast<uint16_t*>(t.data) + e;
      *at = static_cast<uint16_t>(negated(t.dtype, *at));
      return;
    }
    default: {
      auto* at = static_cast<uint32_t*>(t.data) + e;
      *at = negated(t.dtype, *at);
    }
  }
}

/// Waits until all blocks have come here for the `turn`-th time. All blocks must be resident.
__device__ void wait_for_all(unsigned* arrived, unsigned turn) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*static_cast<volatile unsigned*>(arrived) < turn * gridDim.x) {
    }
  }
  __syncthreads();
}

/// Changes the last signs, empties the L2 cache, and keeps the GPU busy until the host has enqueued the rest.
/// Its blocks take all threads of all multiprocessors, so no other kernel runs from the change of the signs to
/// the launch.
__global__ void __launch_bounds__(kReadyThreads, 2048 / kReadyThreads) ready_kernel(const Ready r) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kReadyThreads;
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kReadyThreads + threadIdx.x;
  wait_for_all(r.arrived, 1);
  for (int n = 0; n < r.num_late; ++n) {
    const LateSigns& s = r.late[n];
    const int64_t rows = late_rows(s);
    for (int64_t i = own; i < rows; i += stride) {
      const int64_t at = late_row(s, i) + s.first;
      for (int32_t c = 0; c < s.count; ++c) negate_element(s.tensor, at + c);
    }
  }
  wait_for_all(r.arrived, 2);
  read_all<kReadyUnroll>(r.flush, r.flush_count, own, stride, r.sink);
  wait_for_all(r.arrived, 3);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    const long long start = clock64();
    while (clock64() - start < r.spin_cycles) {
    }
    *r.told = r.ticket;
    __threadfence_system();
    const long long told = clock64();
    while (clock64() - told < r.tail_cycles) {
    }
  }
  wait_for_all(r.arrived, 4);
  if (blockIdx.x != 0) return;
  for (int n = 0; n < r.num_outputs; ++n) {
    const WatchedOutput& o = r.outputs[n];
    const int64_t count = written_elements(o);
    if (threadIdx.x >= kProbes || !o.poisoned || count == 0) continue;
    const int64_t e = written_element(o, probed_element(r.seed, static_cast<int>(threadIdx.x), count));
    if (!is_poison(o.tensor.dtype, element_bits(o.tensor, e))) atomicAdd(r.early, 1ull);
  }
  __syncthreads();
  if (threadIdx.x == 0 && r.clock != nullptr) *r.clock = global_time();
}

__global__ void clock_kernel(unsigned long long* clock) { *clock = global_time(); }

}  // namespace

void read_cuda(const void* data, int64_t bytes, unsigned* sink, int multiprocessors, cudaStream_t stream) {
  read_kernel<<<static_cast<unsigned>(kReadBlocksPerSm * multiprocessors), kReadThreads, 0, stream>>>(
      static_cast<const uint4*>(data), bytes / 16, sink);
  cuda_check(cudaGetLastError(), "read kernel");
}

void reread_cuda(const void* data, int64_t bytes, int passes, unsigned* sink, int multiprocessors,
                 cudaStream_t stream) {
  reread_kernel<<<static_cast<unsigned>(kReadBlocksPerSm * multiprocessors), kReadThreads, 0, stream>>>(
      static_cast<const uint4*>(data), bytes / 16, passes, sink);
  cuda_check(cudaGetLastError(), "reread kernel");
}

LaunchTimer::LaunchTimer(cudaStream_t stream, const DeviceInfo& info)
    : stream_(stream),
      multiprocessors_(info.multiprocessors),
      flush_bytes_((kFlushedCaches * std::max<int64_t>(info.cache_bytes, 1 << 20) + 15) / 16 * 16),
      // The highest clock: at any lower clock the spin lasts longer than requested, never shorter.
      cycles_per_us_(info.clock_mhz > 0 ? info.clock_mhz : 2000.0),
      spin_us_(kMinSpinUs) {
  cuda_check(cudaEventCreate(&begin_), "cudaEventCreate");
  cuda_check(cudaEventCreate(&end_), "cudaEventCreate");
  cuda_check(cudaMalloc(&sink_, sizeof *sink_), "cudaMalloc");
  int per_multiprocessor = 0;
  cuda_check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, ready_kernel, kReadyThreads, 0),
      "occupancy");
  ready_blocks_ = static_cast<unsigned>(per_multiprocessor * multiprocessors_);
  cuda_check(cudaMalloc(&watched_, sizeof *watched_), "cudaMalloc");
  void* host = nullptr;
  cuda_check(cudaHostAlloc(&host, sizeof(unsigned), cudaHostAllocMapped), "cudaHostAlloc");
  spin_ended_ = static_cast<volatile unsigned*>(host);
  *spin_ended_ = 0;
  void* device = nullptr;
  cuda_check(cudaHostGetDevicePointer(&device, host, 0), "cudaHostGetDevicePointer");
  spin_ended_device_ = static_cast<unsigned*>(device);
}

LaunchTimer::~LaunchTimer() {
  cudaFree(flush_);
  cudaFree(sink_);
  cudaFree(watched_);
  cudaFreeHost(const_cast<unsigned*>(spin_ended_));
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
}

void LaunchTimer::make_flush_buffer() {
  if (flush_ != nullptr) return;
  cuda_check(cudaMalloc(&flush_, static_cast<std::size_t>(flush_bytes_)), "cudaMalloc for the cache flush");
  cuda_check(cudaMemsetAsync(flush_, 0, static_cast<std::size_t>(flush_bytes_), stream_), "cudaMemsetAsync");
  // This read writes back the lines that memset left dirty in the cache.
  read_cuda(flush_, flush_bytes_, sink_, multiprocessors_, stream_);
}

void LaunchTimer::make_ready(CacheMode cache, const LaunchWatch* watch) {
  Ready r;
  if (cache == CacheMode::kCold) evict_code(sink_, multiprocessors_, stream_);
  if (is_cold(cache)) {
    make_flush_buffer();
    r.flush = static_cast<const uint4*>(flush_);
    r.flush_count = flush_bytes_ / 16;
  }
  cuda_check(cudaMemsetAsync(watched_, 0, sizeof *watched_, stream_), "cudaMemsetAsync");
  ++ticket_;
  r.tail_cycles = static_cast<long long>(kSpinTailUs * cycles_per_us_);
  r.spin_cycles = static_cast<long long>((spin_us_ - kSpinTailUs) * cycles_per_us_);
  r.told = spin_ended_device_;
  r.ticket = ticket_;
  r.arrived = &watched_->arrived;
  r.sink = sink_;
  if (watch != nullptr) {
    if (watch->outputs.size() > kMostOutputs || watch->late.size() > kMostLate)
      throw std::logic_error("too many tensors to watch");
    for (const WatchedOutput& o : watch->outputs) r.outputs[r.num_outputs++] = o;
    for (const LateSigns& s : watch->late) r.late[r.num_late++] = s;
    r.seed = watch->seed;
    r.early = &watched_->early;
    r.clock = &watched_->clock_begin;
  }
  void* arguments[] = {&r};
  cuda_check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(ready_kernel), dim3(ready_blocks_),
                                         dim3(kReadyThreads), arguments, 0, stream_),
             "ready kernel");
}

void LaunchTimer::empty_caches(CacheMode cache) {
  if (!is_cold(cache)) return;
  make_flush_buffer();
  if (cache == CacheMode::kCold) evict_code(sink_, multiprocessors_, stream_);
  read_cuda(flush_, flush_bytes_, sink_, multiprocessors_, stream_);
}

void LaunchTimer::digest(const LaunchWatch& watch, unsigned long long* sum, unsigned long long* clock) {
  uint64_t factor = 1;
  for (const WatchedOutput& o : watch.outputs) {
    unsigned_digest_cuda(o.tensor, watch.seed, factor, sum, clock, stream_);
    factor *= 31;
    clock = nullptr;
  }
}

uint64_t LaunchTimer::digest(const LaunchWatch& watch) {
  cuda_check(cudaMemsetAsync(watched_, 0, sizeof *watched_, stream_), "cudaMemsetAsync");
  digest(watch, &watched_->when_idle, nullptr);
  Watched seen{};
  cuda_check(cudaMemcpyAsync(&seen, watched_, sizeof seen, cudaMemcpyDeviceToHost, stream_), "digests");
  cuda_check(cudaStreamSynchronize(stream_), "digests");
  return seen.when_idle;
}

WatchReading LaunchTimer::read_watch(const LaunchWatch& watch) {
  // Not only this stream: a kernel may have started work elsewhere.
  cuda_check(cudaDeviceSynchronize(), "timed launch");
  digest(watch, &watched_->when_idle, nullptr);
  Watched seen{};
  cuda_check(cudaMemcpyAsync(&seen, watched_, sizeof seen, cudaMemcpyDeviceToHost, stream_), "digests");
  cuda_check(cudaStreamSynchronize(stream_), "digests");
  WatchReading reading;
  reading.early = static_cast<int64_t>(seen.early);
  reading.at_end = seen.at_end;
  reading.when_idle = seen.when_idle;
  if (seen.clock_end > seen.clock_begin)
    reading.span_us = 1e-3 * static_cast<double>(seen.clock_end - seen.clock_begin);
  return reading;
}

Sample LaunchTimer::time(const std::function<void()>& launch, CacheMode cache, const LaunchWatch* watch) {
  make_ready(cache, watch);
  const auto start = std::chrono::steady_clock::now();
  cuda_check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
  launch();
  cuda_check(cudaEventRecord(end_, stream_), "cudaEventRecord");
  const auto stop = std::chrono::steady_clock::now();
  Sample sample;
  // This test is sound: if the host does not see the ticket yet, the spin still lasts at least its tail.
  sample.host_bound = *spin_ended_ == ticket_;
  sample.enqueue_us = std::chrono::duration<double, std::micro>(stop - start).count();
  if (watch != nullptr) {
    unsigned long long* clock = &watched_->clock_end;
    if (watch->take_outputs) {
      clock_kernel<<<1, 1, 0, stream_>>>(clock);
      cuda_check(cudaGetLastError(), "clock kernel");
      clock = nullptr;
      watch->take_outputs();
    }
    digest(*watch, &watched_->at_end, clock);
  }

  if (watch != nullptr) {
    sample.watch = read_watch(*watch);
  } else {
    cuda_check(cudaEventSynchronize(end_), "timed launch");
  }
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
  sample.us = 1e3 * static_cast<double>(ms);

  // Grows at once to twice the enqueue time, and shrinks slowly. The next launch may be another kernel's, and
  // a first launch that loaded code must not slow down all later ones.
  const double wanted = std::clamp(2 * sample.enqueue_us + kSpinTailUs, kMinSpinUs, kMaxSpinUs);
  spin_us_ = std::max(wanted, 0.9 * spin_us_);
  return sample;
}

}  // namespace attnbench
