// Options for the timing of launches, shared by several subcommands.
#pragma once

#include <cstdint>
#include <string>

#include "harness/timing/timing.h"

namespace CLI {
class App;
}

namespace attnbench::cli {

/// --cache, --clock, --graph, --trust, --seed-order, --no-ceilings, --min-time, --max-samples.
struct TimingFlags {
  std::string cache = "cold", clock = "auto";
  bool clock_chosen = false;  ///< not by the user
  bool graph = false;
  bool trust = false;
  uint64_t order_seed = 0;
  bool no_ceilings = false;
  double min_time_s = 0;
  int max_samples = TimingOptions{}.max_samples;

  void add(CLI::App& command);
  TimingOptions options() const;
};

}  // namespace attnbench::cli
