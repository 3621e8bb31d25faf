#include "harness/compare/join_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/compare/ratio.h"
#include "harness/config/json_number.h"
#include "harness/results/json.h"

namespace attnbench {
std::vector<RunTimes> runs_of(const Record& r) {
  if (r.samples_us().empty() || !r.time->of_runs.empty())
    return r.time ? r.time->of_runs : std::vector<RunTimes>{};
  const TimeResult& t = *r.time;
  return {{band_mean(t.samples_us, band_of(t.clock)), t.samples_us.size(), t.cores_us, t.memory_us,
           t.handover_us}};
}

void set_median(TimeResult& t) {
  const MedianInterval m = median_interval(t.samples_us);
  t.median_us = m.median;
  t.lo_us = m.lo;
  t.hi_us = m.hi;
}

void pool_runs(ResultSet& set, const ResultSet& more) {
  for (const Record& m : more.results) {
    const auto it = std::ranges::find_if(set.results, [&](const Record& r) {
      return r.item.id == m.item.id && r.kernel == m.kernel && r.device == m.device;
    });
    if (it == set.results.end()) {
      set.results.push_back(m);
    } else if (m.status != Status::kPass || it->status != Status::kPass) {
      const bool worse = m.status == Status::kFail || m.status == Status::kUndecided ||
                         m.status == Status::kError || m.status == Status::kTimeout;
      if (it->status == Status::kPass || it->status == Status::kSkip || worse) *it = m;
    } else if (!m.samples_us().empty()) {
      std::vector<RunTimes> runs = runs_of(*it);
      const std::vector<RunTimes> further = runs_of(m);
      runs.insert(runs.end(), further.begin(), further.end());
      if (!it->time) it->time.emplace();
      TimeResult& t = *it->time;
      t.of_runs = std::move(runs);
      for (int TimeResult::*count :
           {&TimeResult::disturbed, &TimeResult::iterations, &TimeResult::host_bound})
        t.*count += (*m.time).*count;
      t.other_us = std::max(t.other_us, m.time->other_us);
      t.samples_us.insert(t.samples_us.end(), m.time->samples_us.begin(), m.time->samples_us.end());
      t.runs += m.time->runs;
      set_median(t);
      ClockSummary& clocks = t.clocks;
      const ClockSummary& others = m.time->clocks;
      if (clocks.sm_mhz && others.sm_mhz)
        clocks.sm_mhz = (*clocks.sm_mhz * (t.runs - m.time->runs) + *others.sm_mhz * m.time->runs) / t.runs;
      std::set<std::string> reasons(clocks.throttle.begin(), clocks.throttle.end());
      reasons.insert(others.throttle.begin(), others.throttle.end());
      clocks.throttle.assign(reasons.begin(), reasons.end());
    }
  }
}

nlohmann::ordered_json pool_result_files(const std::vector<std::string>& paths) {
  if (paths.empty()) throw ResultsError("no results to pool");
  ResultSet pooled = load_results(paths.front());
  for (std::size_t i = 1; i < paths.size(); ++i) pool_runs(pooled, load_results(paths[i]));
  nlohmann::ordered_json out = {{"context", nullptr}, {"benchmarks", nlohmann::ordered_json::array()}};
  if (pooled.context_entry) out["context"] = *pooled.context_entry;
  for (const Record& r : pooled.results) {
    if (r.entry == nullptr)
      throw ResultsError(fmt::format("{}: error: not the results of an attnbench run", paths.front()));
    nlohmann::ordered_json entry = *r.entry;
    if (r.status == Status::kPass && r.time) {
      const auto now = record_to_json(r).at("attnbench");
      for (const char* part : {"time", "clocks"}) entry.at("attnbench")[part] = now.at(part);
      entry["real_time"] = finite_or_null(r.time->median_us);
    }
    out["benchmarks"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace attnbench
