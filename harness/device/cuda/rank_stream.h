// One of several GPUs that compute a case together.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include "harness/device/cuda/launch_timer.h"
#include "harness/device/ranks.h"

namespace attnbench {

class CudaRankStream final : public RankStream {
 public:
  /// `timer` must outlive it.
  CudaRankStream(int ordinal, cudaStream_t stream, int multiprocessors, LaunchTimer& timer);
  ~CudaRankStream() override;

  void* stream() const override { return stream_; }
  void make_current() override;
  void wait_for(RankStream& other) override;
  void mark(int at) override;
  bool reached(int at) override;
  double us_between(int from, int to) override;
  void empty_caches(CacheMode cache) override;
  void poison(void* data, int64_t bytes) override;
  void copy(const ReturnedTensor& tensor) override;
  void meet(const Meeting& meeting) override;
  void gather(const Gathering& g, const Meeting& meeting) override;
  void merge(const Merging& m, const Meeting* meeting) override;
  void correct(const Correcting& c) override;
  [[noreturn]] void give_up(const std::string& why) override;

 private:
  unsigned blocks_for(int64_t items) const;
  unsigned blocks_for_rows(int64_t rows, int32_t dim, int32_t count) const;

  int ordinal_;
  cudaStream_t stream_;
  int multiprocessors_;
  LaunchTimer& timer_;
  bool early_ = false;  ///< a kernel can be set up while the one before it runs
  cudaEvent_t order_ = nullptr;
  std::array<cudaEvent_t, kMostMarks> marks_{};
};

/// Lets the current GPU read and write the memory of GPU `peer`. Returns false if the hardware cannot.
bool enable_peer_access(int ordinal, int peer);

}  // namespace attnbench
