#include "kernels/cuda/sm90_mixed/side_stream.h"

#include <deque>
#include <map>

namespace attnbench::sm90_mixed {
namespace {

/// All side streams, by device. They are made when they are needed and kept for the life of the process.
struct Pool {
  std::mutex mutex;
  std::map<int, std::deque<SideStream>> of_device;
};

Pool& pool() {
  static Pool all;
  return all;
}

cudaError_t make(int device, SideStream* made) {
  int before = 0;
  cudaError_t error = cudaGetDevice(&before);
  if (error == cudaSuccess) error = cudaSetDevice(device);
  int least = 0, greatest = 0;
  if (error == cudaSuccess) error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  for (cudaEvent_t* event : {&made->forked, &made->started, &made->joined}) {
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
  }
  // A side stream has the highest priority: its few blocks get their multiprocessors before the many of the
  // main stream.
  if (error == cudaSuccess) {
    error = cudaStreamCreateWithPriority(&made->stream, cudaStreamNonBlocking, greatest);
  }
  const cudaError_t back = cudaSetDevice(before);
  return error == cudaSuccess ? back : error;
}

/// The id of the capture that `stream` is part of; 0 if none.
cudaError_t capture_of(cudaStream_t stream, unsigned long long* id) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long found = 0;
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &found);
  *id = status == cudaStreamCaptureStatusNone ? 0 : found;
  return error;
}

/// Finds or makes a side stream that is part of no capture, or of the capture of `main`. The pool is locked.
cudaError_t find_or_make(int device, cudaStream_t main, SideStream** side) {
  unsigned long long ours = 0;
  if (const cudaError_t error = capture_of(main, &ours); error != cudaSuccess) return error;
  std::deque<SideStream>& sides = pool().of_device[device];
  for (SideStream& s : sides) {
    unsigned long long theirs = 0;
    if (const cudaError_t error = capture_of(s.stream, &theirs); error != cudaSuccess) return error;
    if (theirs == 0 || theirs == ours) {
      *side = &s;
      return cudaSuccess;
    }
  }
  // A capture in progress forbids none of the calls of make(), but this thread's capture mode might.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
  if (error != cudaSuccess) return error;
  SideStream made{};
  error = make(device, &made);
  const cudaError_t back = cudaThreadExchangeStreamCaptureMode(&mode);
  if (error == cudaSuccess) error = back;
  if (error == cudaSuccess) *side = &sides.emplace_back(made);
  return error;
}

}  // namespace

cudaError_t prepare_side_stream(int device) {
  const std::lock_guard<std::mutex> lock(pool().mutex);
  std::deque<SideStream>& sides = pool().of_device[device];
  if (!sides.empty()) return cudaSuccess;
  SideStream made{};
  const cudaError_t error = make(device, &made);
  if (error == cudaSuccess) sides.push_back(made);
  return error;
}

cudaError_t Fork::begin(int device, cudaStream_t main) {
  turn_ = std::unique_lock<std::mutex>(pool().mutex);
  main_ = main;
  cudaError_t error = find_or_make(device, main, &side_);
  if (error == cudaSuccess) error = cudaEventRecord(side_->forked, main);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(side_->stream, side_->forked);
  return error;
}

cudaError_t Fork::join() {
  cudaError_t error = cudaEventRecord(side_->joined, side_->stream);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(main_, side_->joined);
  turn_.unlock();
  return error;
}

}  // namespace attnbench::sm90_mixed
