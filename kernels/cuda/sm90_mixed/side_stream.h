// A second stream beside the caller's, for work that overlaps with what is on it.
#pragma once

#include <cuda_runtime_api.h>

namespace attnbench::sm90_mixed {

/// One per device, made once and kept for the life of the process. Launches of one device come from one
/// thread at a time: the events are reused by each.
class SideStream {
 public:
  /// Makes it, if it is not there. Not while a graph is captured.
  cudaError_t prepare(int device);

  bool ready() const { return stream_ != nullptr; }
  cudaStream_t stream() const { return stream_; }

  /// From here on the side stream runs beside `main`, after what `main` holds already.
  cudaError_t fork(cudaStream_t main) const;

  /// To be recorded when work on the side stream has got its place; then `main` may wait for that.
  cudaEvent_t started() const { return started_; }

  /// From here on `main` waits for the side stream.
  cudaError_t join(cudaStream_t main) const;

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t forked_ = nullptr;
  cudaEvent_t started_ = nullptr;
  cudaEvent_t joined_ = nullptr;
};

/// That of device `device`; null where the number is beyond what is kept.
SideStream* side_stream(int device);

}  // namespace attnbench::sm90_mixed
