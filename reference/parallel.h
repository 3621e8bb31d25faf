// Work items on threads. An exception must not leave a parallel region: the first is kept, items not yet begun
// are skipped, and it is thrown again behind the region.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

namespace attnbench::reference {

/// Calls work(worker, i) for i in [0, count); make() makes the worker of each thread.
template <class Make, class Work>
void for_each_item(int threads, int64_t count, const Make& make, const Work& work) {
  std::atomic<bool> failed = false;
  std::exception_ptr error;
  std::mutex error_mutex;
#pragma omp parallel num_threads(threads)
  {
    auto worker = make();
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i) {
      if (failed) continue;
      try {
        work(worker, i);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        failed = true;
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace attnbench::reference
