#include "harness/timing/timing.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <set>
#include <stdexcept>

#include "harness/device/cpu_ceilings.h"

namespace attnbench {
namespace {

constexpr int kBatch = 10;              ///< samples between two evaluations of the stopping rule
constexpr double kClockPeriodS = 0.05;  ///< least time between two readings of clocks

/// Collects what Google Benchmark reports of a run, and prints nothing.
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

/// Google Benchmark would keep a registered benchmark for the whole process.
struct ClearRegistered {
  ~ClearRegistered() { benchmark::ClearRegisteredBenchmarks(); }
};

bool enough(const std::vector<double>& samples, double sampled_s, double spent_s, const TimingOptions& o) {
  const int n = static_cast<int>(samples.size());
  if (n < o.min_samples) return false;
  if (n >= o.max_samples) return true;
  if (sampled_s < o.min_time_s) return false;
  if (spent_s >= std::max(o.budget_s, o.min_time_s)) return true;
  const MedianInterval m = median_interval(samples);
  return (m.hi - m.lo) / 2 <= o.target * m.median && middle_half_error(samples) <= o.target * m.median;
}

std::optional<double> middle(std::vector<double> x) {
  if (x.empty()) return std::nullopt;
  return median_interval(std::move(x)).median;
}

/// Sets the medians of launches that several devices shared.
void set_ranks(const std::vector<Sample>& samples, TimeResult& result) {
  if (samples.empty()) return;
  const auto median = [&](const auto& figure) {
    std::vector<double> x;
    for (const Sample& s : samples) x.push_back(figure(s));
    return middle(std::move(x)).value_or(0);
  };
  result.ranks.resize(samples.front().ranks.size());
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    for (const auto& named : kRankFields)
      result.ranks[r].*named.second = median([&](const Sample& s) { return s.ranks[r].*named.second; });
  }
  result.skew_us = median([](const Sample& s) { return s.skew_us; });
}

}  // namespace

int64_t rotation_copies(double workload_bytes, int64_t cache_bytes) {
  const double wanted = 3.0 * static_cast<double>(cache_bytes);
  return wanted <= workload_bytes ? 1
                                  : static_cast<int64_t>(std::ceil(wanted / std::max(1.0, workload_bytes)));
}

ClockSummary summarise(const std::vector<ClockReading>& readings) {
  ClockSummary out;
  out.readings = static_cast<int>(readings.size());
  const auto all = [&](std::optional<double> ClockReading::*field) {
    std::vector<double> known;
    for (const ClockReading& r : readings) {
      if (r.*field) known.push_back(*(r.*field));
    }
    return known;
  };
  const auto most = [&](std::optional<double> ClockReading::*field) -> std::optional<double> {
    const std::vector<double> x = all(field);
    return x.empty() ? std::nullopt : std::optional(*std::ranges::max_element(x));
  };
  const std::vector<double> sm = all(&ClockReading::sm_mhz);
  out.sm_mhz = middle(sm);
  if (!sm.empty()) out.sm_mhz_min = *std::ranges::min_element(sm);
  out.sm_mhz_max = most(&ClockReading::sm_mhz);
  out.mem_mhz = middle(all(&ClockReading::mem_mhz));
  out.power_w = most(&ClockReading::power_w);
  out.temperature_c = most(&ClockReading::temperature_c);
  std::set<std::string> reasons;
  for (const ClockReading& r : readings) reasons.insert(r.throttle.begin(), r.throttle.end());
  out.throttle.assign(reasons.begin(), reasons.end());
  return out;
}

TimeResult time_samples(Device& device, const std::string& name, const std::function<Sample()>& sample,
                        int warmups, const TimingOptions& options) {
  TimeResult result;
  result.cache = options.cache;
  result.graph = options.graph;
  result.clock = options.clock;
  for (int i = 0; i < warmups; ++i) sample();
  std::vector<ClockReading> readings;
  double read_at_s = -1;
  const auto read_clocks = [&](double now_s) {
    if (auto r = device.read_clocks()) readings.push_back(std::move(*r));
    read_at_s = now_s;
  };

  std::vector<double> cores_us, memory_us, handover_us;
  std::vector<Sample> shared;  // by several devices
  std::exception_ptr failure;
  double sampled_s = 0, apart_s = 0;
  Collector collector;
  const double begin_us = us_by(options.clock);
  const auto spent_s = [&] {  // of CPU time: that of this process and of the samples
    const double here_s = 1e-6 * (us_by(options.clock) - begin_us);
    return options.clock == TimeClock::kCpu ? here_s + sampled_s : here_s - apart_s;
  };

  const auto body = [&](benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) {
      if (failure) {
        state.SetIterationTime(0);
        continue;
      }
      try {
        const Sample s = sample();
        state.SetIterationTime(s.us * 1e-6);
        result.samples_us.push_back(s.us);
        result.host_bound += s.host_bound ? 1 : 0;
        result.disturbed += s.disturbed ? 1 : 0;
        if (s.cores_us > 0) cores_us.push_back(s.cores_us);
        if (s.memory_us > 0) memory_us.push_back(s.memory_us);
        if (s.handover_us > 0) handover_us.push_back(s.handover_us);
        sampled_s += s.us * 1e-6;
        apart_s += s.apart_s;
        if (!s.ranks.empty()) shared.push_back(s);
      } catch (...) {
        failure = std::current_exception();
        state.SetIterationTime(0);
      }
    }
  };
  auto* const registered = benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime();
  const ClearRegistered clear;
  read_clocks(0);
  bool done = false;
  while (!done) {
    const int left = options.max_samples - static_cast<int>(result.samples_us.size());
    // A slow launch is sampled one by one once it has min_samples, or the budget would be exceeded tenfold.
    const bool slow = !result.samples_us.empty() && sampled_s > 0.2 * options.budget_s;
    const int wanted =
        slow ? std::max(1, options.min_samples - static_cast<int>(result.samples_us.size())) : kBatch;
    registered->Iterations(std::clamp(wanted, 1, std::max(1, left)));
    // "." selects the only registered benchmark, so the name need not be turned into a regular expression.
    const std::size_t ran = benchmark::RunSpecifiedBenchmarks(&collector, ".");
    if (failure) std::rethrow_exception(failure);
    if (ran == 0) throw std::logic_error("Google Benchmark did not run '" + name + "'");
    done = enough(result.samples_us, sampled_s, spent_s(), options);
    // Clocks are read right after a sample, because those of an idle GPU say nothing. A reading may take
    // milliseconds.
    if (done || spent_s() - read_at_s > kClockPeriodS) read_clocks(spent_s());
  }

  const MedianInterval m = median_interval(result.samples_us);
  result.median_us = m.median;
  result.lo_us = m.lo;
  result.hi_us = m.hi;
  result.iterations = collector.iterations;
  result.real_time_us = collector.real_s * 1e6 / std::max(1, collector.iterations);
  result.cpu_time_us = collector.cpu_s * 1e6 / std::max(1, collector.iterations);
  result.clocks = summarise(readings);
  result.cores_us = middle(std::move(cores_us)).value_or(0);
  result.memory_us = middle(std::move(memory_us)).value_or(0);
  result.handover_us = middle(std::move(handover_us)).value_or(0);
  set_ranks(shared, result);
  return result;
}

}  // namespace attnbench
