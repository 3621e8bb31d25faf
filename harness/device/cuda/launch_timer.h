// Times single launches on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "harness/device/device.h"

namespace attnbench {

/// Enqueues reads of every byte of data[0, bytes). `bytes` is a multiple of 16 and `data` is 16-byte aligned.
/// `sink` (device memory) may get a word, so that the compiler keeps the loads.
void read_cuda(const void* data, int64_t bytes, unsigned* sink, int multiprocessors, cudaStream_t stream);

/// Enqueues the same reads `passes` times, each pass from another offset, so that the compiler keeps all
/// loads. If `bytes` is less than the L2 cache, this measures the rate of L2.
void reread_cuda(const void* data, int64_t bytes, int passes, unsigned* sink, int multiprocessors,
                 cudaStream_t stream);

/// Order on the stream: [run through code] [change signs, read a buffer of four times L2, spin] [event] launch
/// [event] [digest]. What stands in the second brackets is one kernel that fills the GPU. Its spin keeps the
/// GPU busy until the host has enqueued the rest, so that the events enclose only device time. At its end it
/// looks at the outputs of a launch that is watched; the digest reads them.
class LaunchTimer {
 public:
  LaunchTimer(cudaStream_t stream, const DeviceInfo& info);
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  Sample time(const std::function<void()>& launch, CacheMode cache, const LaunchWatch* watch = nullptr);
  /// Digest of watched outputs when the stream is idle.
  uint64_t digest(const LaunchWatch& watch);
  /// Enqueues what `cache` requires before a sample: reads that leave nothing else in the L2 cache, and code
  /// that leaves no other code in the instruction caches.
  void empty_caches(CacheMode cache);

 private:
  void make_flush_buffer();
  void make_ready(CacheMode cache, const LaunchWatch* watch);
  void digest(const LaunchWatch& watch, unsigned long long* sum, unsigned long long* clock);
  WatchReading read_watch(const LaunchWatch& watch);

  cudaStream_t stream_;
  int multiprocessors_;
  int64_t flush_bytes_;
  double cycles_per_us_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  void* flush_ = nullptr;                    ///< allocated at the first cold sample
  unsigned* sink_ = nullptr;                 ///< device memory
  volatile unsigned* spin_ended_ = nullptr;  ///< host memory to which the GPU writes
  unsigned* spin_ended_device_ = nullptr;    ///< the same memory, as addressed by the GPU
  unsigned ready_blocks_ = 0;                ///< as many as the GPU holds at once
  unsigned ticket_ = 0;                      ///< number of the current spin
  double spin_us_;
  struct Watched;
  Watched* watched_ = nullptr;  ///< device memory
};

}  // namespace attnbench
