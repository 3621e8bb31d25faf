// Computes with a thread per core of the machine, whatever number of threads it is given (--threads 1).
// No public source known.
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage*) {
  const AttentionParams& p = op->attention;
  const auto n = static_cast<int32_t>(std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (int32_t t = 1; t < n; ++t) {
    threads.emplace_back(
        [&p, n, t] { compute_heads(p, p.num_heads_q * t / n, p.num_heads_q * (t + 1) / n); });
  }
  compute_heads(p, 0, p.num_heads_q / n);
  for (std::thread& t : threads) t.join();
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(takes_more_threads, "a thread per core of the machine", k.launch = attnbench::cheats::launch);
