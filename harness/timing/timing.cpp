#include "harness/timing/timing.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>

namespace attnbench {
namespace {

constexpr int kWarmups = 2;
constexpr int kBatch =
    10;  ///< iterations that Google Benchmark is asked for at a time; then the stopping rule looks

/// Takes Google Benchmark's own account of a run and prints nothing.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& r : runs) {
      iterations += static_cast<int>(r.iterations);
      real_s += r.real_accumulated_time;
      cpu_s += r.cpu_accumulated_time;
    }
  }
  int iterations = 0;
  double real_s = 0;
  double cpu_s = 0;
};

bool enough(const std::vector<double>& samples, double sampled_s, double wall_s, const TimingOptions& o) {
  const int n = static_cast<int>(samples.size());
  if (n < o.min_samples) return false;
  if (n >= o.max_samples) return true;
  if (sampled_s < o.min_time_s) return false;
  if (wall_s >= std::max(o.budget_s, o.min_time_s)) return true;
  const MedianInterval m = median_interval(samples);
  return (m.hi - m.lo) / 2 <= o.target * m.median;
}

}  // namespace

TimeResult time_launches(Device& device, const std::string& name, const std::function<void()>& launch,
                         const TimingOptions& options) {
  TimeResult result;
  result.cache = options.cache;
  result.graph = options.graph;
  const std::function<void()> timed = options.graph ? device.capture_graph(launch) : launch;
  for (int i = 0; i < kWarmups; ++i) device.time_launch(timed, options.cache);

  std::exception_ptr failure;
  double sampled_s = 0;
  Collector collector;
  const auto begin = std::chrono::steady_clock::now();
  const auto wall_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };

  const auto body = [&](benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) {
      if (failure) {
        state.SetIterationTime(0);
        continue;
      }
      try {
        const Sample s = device.time_launch(timed, options.cache);
        state.SetIterationTime(s.us * 1e-6);
        result.samples_us.push_back(s.us);
        result.host_bound += s.host_bound ? 1 : 0;
        result.disturbed += s.disturbed ? 1 : 0;
        sampled_s += s.us * 1e-6;
      } catch (...) {
        failure = std::current_exception();
        state.SetIterationTime(0);
      }
    }
  };
  do {
    const int left = options.max_samples - static_cast<int>(result.samples_us.size());
    // A slow launch is sampled one at a time once it has its minimum, so that the budget is not overrun
    // tenfold.
    const bool slow = !result.samples_us.empty() && sampled_s > 0.2 * options.budget_s;
    const int wanted =
        slow ? std::max(1, options.min_samples - static_cast<int>(result.samples_us.size())) : kBatch;
    benchmark::RegisterBenchmark(name.c_str(), body)
        ->UseManualTime()
        ->Iterations(std::clamp(wanted, 1, std::max(1, left)));
    // "." is every registered benchmark, of which there is one: no regular expression is made of the name.
    const std::size_t ran = benchmark::RunSpecifiedBenchmarks(&collector, ".");
    benchmark::ClearRegisteredBenchmarks();
    if (failure) std::rethrow_exception(failure);
    if (ran == 0) throw std::logic_error("Google Benchmark did not run '" + name + "'");
  } while (!enough(result.samples_us, sampled_s, wall_s(), options));

  const MedianInterval m = median_interval(result.samples_us);
  result.median_us = m.median;
  result.lo_us = m.lo;
  result.hi_us = m.hi;
  result.iterations = collector.iterations;
  result.real_time_us = collector.real_s * 1e6 / std::max(1, collector.iterations);
  result.cpu_time_us = collector.cpu_s * 1e6 / std::max(1, collector.iterations);
  return result;
}

}  // namespace attnbench
