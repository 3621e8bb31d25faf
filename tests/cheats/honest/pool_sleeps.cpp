// Shares heads with a pool of threads of its own, which sleep on a condition variable between launches.
#include <condition_variable>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

struct Pool {
  std::mutex mutex;
  std::condition_variable work, ready;
  const AttentionParams* p = nullptr;
  int size, next = 0, left = 0;
  explicit Pool(int n) : size(n) {
    for (int t = 1; t < n; ++t) std::thread([this] { serve(); }).detach();
  }
  void part(int t) { compute_heads(*p, p->num_heads_q * t / size, p->num_heads_q * (t + 1) / size); }
  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      work.wait(lock, [&] { return next > 0; });
      const int t = next--;
      lock.unlock();
      part(t);
      lock.lock();
      if (--left == 0) ready.notify_one();
    }
  }
  void run(const AttentionParams& launch) {
    std::unique_lock lock(mutex);
    p = &launch;
    next = left = size - 1;
    work.notify_all();
    lock.unlock();
    part(0);
    lock.lock();
    ready.wait(lock, [&] { return left == 0; });
  }
};

}  // namespace

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage*) {
  static Pool* const pool = new Pool(context->num_threads);
  pool->run(op->attention);
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(pool_sleeps, "a pool of threads that sleeps between launches",
                k.launch = attnbench::cheats::launch);
