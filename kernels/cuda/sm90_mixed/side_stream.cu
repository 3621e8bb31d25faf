#include "kernels/cuda/sm90_mixed/side_stream.h"

namespace attnbench::sm90_mixed {

cudaError_t SideStream::prepare(int device) {
  if (ready()) return cudaSuccess;
  int before = 0;
  cudaError_t error = cudaGetDevice(&before);
  if (error == cudaSuccess) error = cudaSetDevice(device);
  int least = 0, greatest = 0;
  if (error == cudaSuccess) error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&started_, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming);
  // The highest priority: its few blocks get their multiprocessors before the many of the main stream.
  cudaStream_t made = nullptr;
  if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest);
  const cudaError_t back = cudaSetDevice(before);
  if (error == cudaSuccess) error = back;
  if (error == cudaSuccess) stream_ = made;
  return error;
}

cudaError_t SideStream::fork(cudaStream_t main) const {
  const cudaError_t error = cudaEventRecord(forked_, main);
  return error == cudaSuccess ? cudaStreamWaitEvent(stream_, forked_) : error;
}

cudaError_t SideStream::join(cudaStream_t main) const {
  const cudaError_t error = cudaEventRecord(joined_, stream_);
  return error == cudaSuccess ? cudaStreamWaitEvent(main, joined_) : error;
}

SideStream* side_stream(int device) {
  constexpr int kDevices = 64;
  static SideStream streams[kDevices];
  return device >= 0 && device < kDevices ? &streams[device] : nullptr;
}

}  // namespace attnbench::sm90_mixed
