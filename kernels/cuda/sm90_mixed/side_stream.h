// A second stream beside the caller's, for work that overlaps with the work on it.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

namespace attnbench::sm90_mixed {

struct SideStream {
  cudaStream_t stream;
  cudaEvent_t forked, started, joined;
};

/// Makes a side stream of device `device` ready, so that a launch finds one.
cudaError_t prepare_side_stream(int device);

/// A side stream that runs beside `main`, from begin() to join(). Threads may launch, and capture graphs, at
/// the same time: they take turns from begin() to join(). A side stream that is part of a capture serves no
/// other stream until that capture has ended.
class Fork {
 public:
  /// From here on the side stream runs beside `main`, after what `main` holds already.
  cudaError_t begin(int device, cudaStream_t main);

  cudaStream_t stream() const { return side_->stream; }

  /// The event to record when the side stream's work has its multiprocessors, so that `main` may wait for it.
  cudaEvent_t started() const { return side_->started; }

  /// From here on `main` waits for the side stream. After a successful begin() it must be called.
  cudaError_t join();

 private:
  std::unique_lock<std::mutex> turn_;
  cudaStream_t main_ = nullptr;
  SideStream* side_ = nullptr;
};

}  // namespace attnbench::sm90_mixed
