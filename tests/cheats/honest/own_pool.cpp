// Shares the heads between the caller and a thread of its own, which sleeps between launches.
#include <condition_variable>
#include <functional>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

/// One thread that runs one job at a time. It lives as long as the process.
class Helper {
 public:
  Helper() {
    std::thread([this] { serve(); }).detach();
  }
  void begin(std::function<void()> job) {
    {
      const std::lock_guard guard(lock_);
      job_ = std::move(job);
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock guard(lock_);
    changed_.wait(guard, [this] { return job_ == nullptr; });
  }

 private:
  void serve() {
    for (std::unique_lock guard(lock_);;) {
      changed_.wait(guard, [this] { return job_ != nullptr; });
      guard.unlock();
      job_();
      guard.lock();
      job_ = nullptr;
      changed_.notify_all();
    }
  }
  std::mutex lock_;
  std::condition_variable changed_;
  std::function<void()> job_;
};

KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage*) {
  static Helper& helper = *new Helper;  // never destroyed: its thread may still sleep when the process ends
  const AttentionParams& p = op->attention;
  helper.begin([&p] { compute_heads(p, p.num_heads_q / 2, p.num_heads_q); });
  compute_half(p);
  helper.wait();
  return KernelStatus::kOk;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(own_pool, "computes on a thread of its own, which sleeps between launches",
                k.launch = attnbench::cheats::launch);
