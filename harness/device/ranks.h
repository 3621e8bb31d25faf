// Several devices of one process that compute one case together: rank r is the r-th of them. What lies between
// the launches of their kernels: an order, a common start, times, and the ways to exchange partial states.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "harness/device/nccl.h"
#include "harness/device/rank_rows.h"

namespace attnbench {

/// The stream of one rank. Calls enqueue work and return, if not said otherwise.
class RankStream {
 public:
  static constexpr int kMostMarks = 8;

  virtual ~RankStream() = default;
  virtual void* stream() const = 0;  ///< cudaStream_t; null on cpu
  /// Calls into kernels are for this device from now on. Every other call sees to that itself.
  virtual void make_current() = 0;
  /// What is enqueued here from now on begins when the other stream has done what it holds now.
  virtual void wait_for(RankStream& other) = 0;
  /// Takes the time at this place of the stream. In a graph, each replay takes it.
  virtual void mark(int at) = 0;
  virtual bool reached(int at) = 0;  ///< whether the last mark(at) has been passed
  /// Time between two marks that have been reached.
  virtual double us_between(int from, int to) = 0;
  virtual void empty_caches(CacheMode cache) = 0;       ///< as before a timed launch
  virtual void poison(void* data, int64_t bytes) = 0;   ///< all ones
  virtual void copy(const ReturnedTensor& tensor) = 0;  ///< without poison in the place that it came from
  virtual void meet(const Meeting& meeting) = 0;        ///< goes on when all ranks have come here
  virtual void gather(const Gathering& g, const Meeting& meeting) = 0;  ///< meets first
  /// Meets first, if there is a meeting. Then it may be set up while the kernel before it still runs.
  virtual void merge(const Merging& m, const Meeting* meeting) = 0;
  virtual void correct(const Correcting& c) = 0;
  /// Ends the process, because a launch that does not end cannot be undone: memory that it uses cannot be
  /// released. Throws DeviceError where that is not so.
  [[noreturn]] virtual void give_up(const std::string& why) = 0;
};

/// Devices of one process that can read each other's memory.
struct RankTeam {
  std::vector<Device*> devices;
  std::vector<RankStream*> streams;
  std::string nccl_library;    ///< empty: the usual ones
  std::unique_ptr<Nccl> nccl;  ///< opened by nccl_of
  double hang_s = 30;          ///< a verified launch that takes longer hangs

  int32_t ranks() const { return static_cast<int32_t>(devices.size()); }
};

/// NCCL between the team's devices, which is opened at the first call; null with the reason.
Nccl* nccl_of(RankTeam& team, std::string& why_not);

/// A CPU whose ranks are devices of the same CPU: for tests of what several GPUs do. `nccl_library`: a library
/// with NCCL's functions for host memory.
std::unique_ptr<Device> open_cpu_ranks(int num_threads, int ranks, const std::string& nccl_library);

}  // namespace attnbench
