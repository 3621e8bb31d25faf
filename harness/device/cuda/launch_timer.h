// Times single launches on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "harness/device/device.h"

namespace attnbench {

/// Enqueues reads of every byte of data[0, bytes); bytes a multiple of 16, data 16-byte aligned. `sink`
/// (device memory) gets a word now and then, so that the compiler keeps the loads.
void read_cuda(const void* data, int64_t bytes, unsigned* sink, int multiprocessors, cudaStream_t stream);

/// The same `passes` times over, each from another place on, so that no load can be left out: with fewer
/// bytes than the L2 cache has, its rate.
void reread_cuda(const void* data, int64_t bytes, int passes, unsigned* sink, int multiprocessors,
                 cudaStream_t stream);

/// Order on the stream: [read a buffer of twice L2] [run through code] [spin] [event] launch [event]. The
/// spin keeps the GPU busy until the host has enqueued all of the rest, so that the events enclose device
/// time only.
class LaunchTimer {
 public:
  LaunchTimer(cudaStream_t stream, const DeviceInfo& info);
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  Sample time(const std::function<void()>& launch, CacheMode cache);
  /// Enqueues what `cache` wants before a sample: reads that leave nothing else in the L2 cache, code that
  /// leaves no other in the instruction caches.
  void empty_caches(CacheMode cache);

 private:
  void flush_cache();
  void spin();

  cudaStream_t stream_;
  int multiprocessors_;
  int64_t flush_bytes_;
  double cycles_per_us_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  void* flush_ = nullptr;                    ///< allocated at the first cold sample
  unsigned* sink_ = nullptr;                 ///< device memory
  volatile unsigned* spin_ended_ = nullptr;  ///< host memory that the GPU writes
  unsigned* spin_ended_device_ = nullptr;    ///< the same, as the GPU addresses it
  unsigned ticket_ = 0;                      ///< number of the current spin
  double spin_us_;
};

}  // namespace attnbench
