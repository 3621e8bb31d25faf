#include "harness/cli/timing_flags.h"

#include <CLI/CLI.hpp>

#include "harness/cli/common.h"
#include "harness/cli/option.h"

namespace attnbench::cli {

void TimingFlags::add(CLI::App& command) {
  command
      .add_option(
          "--cache", cache,
          "Caches before each timed launch: cold (default; data, and on a GPU code too, as between the "
          "kernels of a model), cold_data (GPU only: the code stays warm), hot, or rotate: each launch "
          "takes the next of several copies of the tensors, together three times the cache or more")
      ->check(
          CLI::IsMember(std::vector<std::string>(std::begin(kCacheModeNames), std::end(kCacheModeNames))));
  command
      .add_option(
          "--clock", clock,
          "What a time on a CPU is: wall, cpu (CPU time of the kernel's process, whatever else takes the "
          "cores; time in which a kernel waits does not count), or auto (default: cpu for one thread "
          "beside other processes that keep a core busy, else wall)")
      ->take_last()  // a worker is told what was chosen
      ->check(CLI::IsMember({"auto", "wall", "cpu"}));
  command.add_flag("--graph", graph, "Time replays of a CUDA graph of the launch (GPU only)");
  command.add_flag(
      "--trust", trust,
      "Do not watch timed launches: quicker, but a kernel that does less when it is timed passes");
  option(
      command, "--seed-order", order_seed, "N",
      "Seed of what a kernel must not predict: the rows compared, the inputs and the order of timed launches "
      "(default: from the system). Repro lines name the seed that was drawn")
      ->check(CLI::PositiveNumber);
  command.add_flag("--no-ceilings", no_ceilings,
                   "Do not measure this machine's ceilings first: quicker, but no %SOL and no bound");
  option(
      command, "--min-time", min_time_s, "S",
      "Sample at least this many seconds of device time per case, unless --max-samples is reached (default "
      "0: until the median is known to 0.5 %, or for a second)")
      ->check(number_in(0.0, 3600.0));
  option(command, "--max-samples", max_samples, "N",
         "Stop at this many samples per case (default 200, at least 10)")
      ->check(CLI::Range(TimingOptions{}.min_samples, 1000000));
}

TimingOptions TimingFlags::options() const {
  TimingOptions t;
  t.cache = cache_mode_of(cache).value();  // the option has checked it
  t.graph = graph;
  if (clock == "cpu") t.clock = TimeClock::kCpu;
  t.watch = !trust;
  t.order_seed = order_seed;
  t.ceilings = !no_ceilings;
  t.min_time_s = min_time_s;
  t.max_samples = max_samples;
  return t;
}

}  // namespace attnbench::cli
