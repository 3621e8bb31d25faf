#include "harness/compare/machine_pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/compare/join_runs.h"
#include "harness/compare/ratio.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

bool tells_pace(const std::vector<RunTimes>& runs, std::size_t samples) {
  std::size_t told = 0;
  for (const RunTimes& r : runs) {
    if (!(r.cores_us > 0) || r.samples == 0) return false;
    told += r.samples;
  }
  return told > 0 && told == samples;
}

/// A time (of a probe, or of the kernel) in the runs of one side, without the slowest and the fastest quarter. So one disturbed run
/// of many decides nothing, as with disturbed samples (midmean).
struct Probe {
  double mean_us;  ///< geometric
  double least_us, most_us;
};

/// nullopt if a run lacks this probe.
std::optional<Probe> probe_of(const std::vector<RunTimes>& runs, double RunTimes::*field) {
  std::vector<double> us;
  for (const RunTimes& r : runs) {
    if (!(r.*field > 0)) return std::nullopt;
    us.push_back(r.*field);
  }
  std::ranges::sort(us);
  const std::size_t outer = us.size() / 4, end = us.size() - outer;
  double sum = 0;
  for (std::size_t i = outer; i < end; ++i) sum += std::log(us[i]);
  return Probe{std::exp(sum / static_cast<double>(end - outer)), us[outer], us[end - 1]};
}

}  // namespace

std::optional<Pace> pace_between(const Record& base, const Record& fresh) {
  const std::vector<RunTimes> b = runs_of(base), f = runs_of(fresh);
  if (!tells_pace(b, base.samples_us().size()) || !tells_pace(f, fresh.samples_us().size()))
    return std::nullopt;
  Pace pace;
  pace.cores = probe_of(f, &RunTimes::cores_us)->mean_us / probe_of(b, &RunTimes::cores_us)->mean_us;
  const auto base_memory = probe_of(b, &RunTimes::memory_us),
             fresh_memory = probe_of(f, &RunTimes::memory_us);
  if (base_memory && fresh_memory) pace.memory = fresh_memory->mean_us / base_memory->mean_us;
  return pace;
}

std::string contradicts_clock(const Record& base, const Record& fresh, const Clocked& clocked) {
  const std::string advice =
      clocked.in_turns
          ? "run both sides again on a quiet machine"
          : "run both sides again on a quiet machine, or in turns (gate --against or --against-plugin)";
  const std::vector<RunTimes> b = runs_of(base), f = runs_of(fresh);
  const auto moved = [&](const char* name, double RunTimes::*field) -> std::string {
    const auto of_base = probe_of(b, field), of_fresh = probe_of(f, field);
    if (!of_base || !of_fresh) return "";
    const double spread =
        std::max(of_base->most_us, of_fresh->most_us) / std::min(of_base->least_us, of_fresh->least_us);
    const double beyond = kMostByProbe * spread, time = clocked.time_ratio, paced = clocked.paced_ratio;
    if (std::min(time, paced) > beyond || std::max(time, paced) < 1 / beyond) return "";
    const double counts = least_change(base, fresh, clocked.in_turns, beyond);
    const auto [least, most] = std::minmax(of_base->mean_us, of_fresh->mean_us);
    if (most > kMostProbeMove * least) {
      return fmt::format(
          "the {} took {} us in BASE and {} us in NEW, more than {:g} times apart: other work slowed one side "
          "more than the other, so the difference may not be the kernel's, and only a change by a factor of over {} (its whole interval) could be told; {}",
          name, digits(of_base->mean_us), digits(of_fresh->mean_us), kMostProbeMove, digits(counts, 2),
          advice);
    }
    for (const auto& [side, probe] : {std::pair{"BASE", of_base}, std::pair{"NEW", of_fresh}}) {
      if (probe->most_us <= kMostProbeMove * probe->least_us) continue;
      return fmt::format(
          "the {} took {} to {} us in the runs of {}, more than {:g} times apart: other work slowed some runs "
          "and not others, so the difference may not be the kernel's, and only a change by a factor of over {} (its whole interval) could be told; "
          "{}",
          name, digits(probe->least_us), digits(probe->most_us), side, kMostProbeMove, digits(counts, 2),
          advice);
    }
    return "";
  };
  std::string why = moved("CPU test loop cores_us", &RunTimes::cores_us);
  if (why.empty()) why = moved("memory test loop memory_us", &RunTimes::memory_us);
  if (!why.empty()) return why;
  const auto beyond = [&](double ratio, double other) {
    return ratio > 1 + clocked.effect && other < 1 - clocked.effect;
  };
  if (!beyond(clocked.time_ratio, clocked.paced_ratio) && !beyond(clocked.paced_ratio, clocked.time_ratio)) {
    return "";
  }
  return fmt::format(
      "time {:+.1f} %, but time / CPU test loop {:+.1f} % (cores_us, {} us in BASE and {} us in NEW): the two "
      "contradict each other; {}",
      100 * (clocked.time_ratio - 1), 100 * (clocked.paced_ratio - 1),
      digits(probe_of(b, &RunTimes::cores_us)->mean_us), digits(probe_of(f, &RunTimes::cores_us)->mean_us),
      advice);
}

LikeRuns keep_like_runs(Record& base, Record& fresh) {
  const std::vector<RunTimes> b = runs_of(base), f = runs_of(fresh);
  const auto tells = [](const RunTimes& r) { return r.handover_us > 0; };
  if (!std::ranges::all_of(b, tells) || !std::ranges::all_of(f, tells)) {
    return LikeRuns::kUnknown;
  }
  std::vector<double> us;
  for (const RunTimes& r : f) us.push_back(r.handover_us);
  const auto middle = us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2);
  std::nth_element(us.begin(), middle, us.end());
  const auto alike = [now = *middle](const RunTimes& r) {
    return r.handover_us < now * kSameHandover && r.handover_us > now / kSameHandover;
  };
  if (std::ranges::count_if(b, alike) < std::min<std::ptrdiff_t>(3, std::ssize(b))) {
    return LikeRuns::kNone;
  }
  for (Record* side : {&base, &fresh}) {
    TimeResult& t = *side->time;
    const std::vector<RunTimes> all = runs_of(*side);
    const std::vector<double> samples = std::exchange(t.samples_us, {});
    t.of_runs.clear();
    auto first = samples.begin();
    for (const RunTimes& r : all) {
      const auto last = first + static_cast<std::ptrdiff_t>(r.samples);
      if (alike(r)) {
        t.samples_us.insert(t.samples_us.end(), first, last);
        t.of_runs.push_back(r);
      }
      first = last;
    }
    set_median(t);
    t.runs = static_cast<int>(t.of_runs.size());
  }
  return LikeRuns::kAlike;
}

double most_by_sharing(const Record& base, const Record& fresh, bool fresh_is_shared) {
  constexpr double kLongUs = 20000;
  const auto us = !pace_between(base, fresh) ? std::min(base.median_us(), fresh.median_us())
                  : fresh_is_shared          ? fresh.median_us()
                                             : base.median_us();
  return us >= kLongUs ? 16 : 1000;
}

std::optional<double> disturbance_in_turns(const Record& base, const Record& fresh) {
  const std::vector<RunTimes> b = runs_of(base), f = runs_of(fresh);
  if (b.size() != f.size() || b.size() < kLeastTurns) return std::nullopt;
  const std::optional<Probe> of_base = probe_of(b, &RunTimes::us), of_fresh = probe_of(f, &RunTimes::us);
  if (!of_base || !of_fresh) return std::nullopt;
  return std::max(of_base->most_us / of_base->least_us, of_fresh->most_us / of_fresh->least_us);
}

double least_change(const Record& base, const Record& fresh, bool in_turns, double most) {
  const std::optional<double> disturbance = in_turns ? disturbance_in_turns(base, fresh) : std::nullopt;
  return disturbance ? std::min(most, kMostByTurns * *disturbance) : most;
}

std::vector<double> paced_samples(const Record& result) {
  std::vector<double> out = result.samples_us();
  std::size_t i = 0;
  for (const RunTimes& run : runs_of(result)) {
    for (std::size_t k = 0; k < run.samples && i < out.size(); ++k) out[i++] /= run.cores_us;
  }
  return out;
}

std::vector<std::vector<double>> samples_by_run(const Record& result) {
  std::vector<std::vector<double>> out;
  auto from = result.samples_us().begin();
  for (const RunTimes& run : runs_of(result)) {
    const auto left = result.samples_us().end() - from;
    const auto to = from + std::min<std::ptrdiff_t>(left, static_cast<std::ptrdiff_t>(run.samples));
    out.emplace_back(from, to);
    from = to;
  }
  return out;
}

std::vector<double> run_times(const Record& result, bool paced) {
  std::vector<double> out;
  for (const RunTimes& r : runs_of(result)) out.push_back(paced ? r.us / r.cores_us : r.us);
  return out;
}

}  // namespace attnbench
