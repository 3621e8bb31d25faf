#include "harness/compare/join_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/compare/ratio.h"
#include "harness/results/json_read.h"
#include "harness/results/load.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

Json read(const std::string& path) {
  Json results = Json::parse(read_results_text(path));
  check_schema(results.at("context"), path);
  for (Json& entry : results.at("benchmarks")) fill_params(entry, results.at("context"));
  return results;
}

bool passed(const Json& entry) { return entry.at("attnbench").at("status") == "pass"; }

std::vector<double> samples_of(const Json& time) {
  std::vector<double> samples;
  for (const Json& us : time.at("samples_us")) {
    if (us.is_number()) samples.push_back(us.get<double>());
  }
  return samples;
}

/// Lists with one value per run: midmean, number of samples, and the times of the probes.
const char* const kOfRuns[] = {"run_us", "run_samples", "run_cores_us", "run_memory_us", "run_handover_us"};

Json of_run(const Json& time, const std::string& key) {
  if (time.contains(key)) return time.at(key);
  const std::vector<double> samples = samples_of(time);
  if (samples.empty()) return Json::array();
  if (key == "run_us") return {midmean(samples)};
  if (key == "run_samples") return {samples.size()};
  return Json::array({time.value(key.substr(4), Json(nullptr))});
}

/// Adds another run's samples to an entry that passed.
void add_samples(Json& entry, const Json& more) {
  Json& time = entry.at("attnbench").at("time");
  const Json& further = more.at("attnbench").at("time");
  if (time.is_null() || further.is_null()) return;
  std::map<std::string, Json> of_runs;
  for (const std::string key : kOfRuns) {
    of_runs[key] = of_run(time, key);
    for (const Json& v : of_run(further, key)) of_runs[key].push_back(v);
  }
  for (const Json& us : further.at("samples_us")) time.at("samples_us").push_back(us);
  const std::vector<double> samples = samples_of(time);
  const MedianInterval m = median_interval(samples);
  time["median_us"] = entry["real_time"] = m.median;
  time["lo_us"] = m.lo;
  time["hi_us"] = m.hi;
  const int runs = time.value("runs", 1), further_runs = further.value("runs", 1);
  time["runs"] = runs + further_runs;
  for (auto& [key, values] : of_runs) {
    if (!values.empty() && !values[0].is_null()) time[key] = std::move(values);
  }
  for (const char* count : {"iterations", "host_bound", "disturbed"}) {
    time[count] = time.value(count, 0) + further.value(count, 0);
  }
  Json& clocks = entry.at("attnbench")["clocks"];
  const Json further_clocks = more.at("attnbench").value("clocks", Json::object());
  const auto has_clock = [](const Json& c) {
    return c.is_object() && c.contains("sm_mhz") && c["sm_mhz"].is_number();
  };
  if (has_clock(clocks) && has_clock(further_clocks)) {
    clocks["sm_mhz"] =
        (clocks["sm_mhz"].get<double>() * runs + further_clocks["sm_mhz"].get<double>() * further_runs) /
        (runs + further_runs);
  }
  if (clocks.is_object() && further_clocks.value("throttled", false)) {
    clocks["throttled"] = true;
  }
}

}  // namespace

std::vector<LoadedRun> runs_of(const LoadedResult& r) {
  if (!r.per_run.empty() || r.samples_us.empty()) return r.per_run;
  return {{midmean(r.samples_us), r.samples_us.size(), r.cores_us, r.memory_us, r.handover_us}};
}

void pool_runs(ResultSet& set, const ResultSet& more) {
  for (const LoadedResult& m : more.results) {
    const auto it = std::find_if(set.results.begin(), set.results.end(), [&](const LoadedResult& r) {
      return r.id == m.id && r.kernel == m.kernel && r.device == m.device;
    });
    if (it == set.results.end()) {
      set.results.push_back(m);
    } else if (m.status != Status::kPass || it->status != Status::kPass) {
      const bool worse = m.status == Status::kFail || m.status == Status::kUndecided ||
                         m.status == Status::kError || m.status == Status::kTimeout;
      if (it->status == Status::kPass || it->status == Status::kSkip || worse) *it = m;
    } else if (!m.samples_us.empty()) {
      it->per_run = runs_of(*it);
      const std::vector<LoadedRun> further = runs_of(m);
      it->per_run.insert(it->per_run.end(), further.begin(), further.end());
      it->disturbed += m.disturbed;
      it->samples_us.insert(it->samples_us.end(), m.samples_us.begin(), m.samples_us.end());
      it->runs += m.runs;
      const MedianInterval interval = median_interval(it->samples_us);
      it->median_us = interval.median;
      it->lo_us = interval.lo;
      it->hi_us = interval.hi;
      if (it->sm_mhz && m.sm_mhz)
        it->sm_mhz = (*it->sm_mhz * (it->runs - m.runs) + *m.sm_mhz * m.runs) / it->runs;
      it->throttled = it->throttled || m.throttled;
    }
  }
}

Json pool_result_files(const std::vector<std::string>& paths) {
  if (paths.empty()) throw ResultsError("no results to pool");
  try {
    Json out = read(paths.front());
    std::map<std::string, Json*> entries;
    const auto key = [](const Json& e) {
      const Json& own = e.at("attnbench");
      return own.at("id").get<std::string>() + "\n" + own.at("kernel").get<std::string>() + "\n" +
             own.at("device").get<std::string>();
    };
    for (Json& entry : out.at("benchmarks")) entries[key(entry)] = &entry;
    for (std::size_t i = 1; i < paths.size(); ++i) {
      const Json more = read(paths[i]);
      for (const Json& entry : more.at("benchmarks")) {
        const auto it = entries.find(key(entry));
        if (it == entries.end() || !passed(*it->second)) continue;
        if (passed(entry)) {
          add_samples(*it->second, entry);
        } else {
          *it->second = entry;
        }
      }
    }
    return out;
  } catch (const Json::exception& e) {
    throw ResultsError(
        fmt::format("{}: error: not the results of an attnbench run: {}", paths.front(), e.what()));
  }
}

}  // namespace attnbench
