#include "harness/report/pool.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>

#include "harness/report/load.h"
#include "harness/report/ratio.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

Json read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ResultsError(fmt::format("{}: error: cannot be read", path));
  return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

bool passed(const Json& entry) { return entry.at("attnbench").at("status") == "pass"; }

std::vector<double> samples_of(const Json& time) {
  std::vector<double> samples;
  for (const Json& us : time.at("samples_us")) {
    if (us.is_number()) samples.push_back(us.get<double>());
  }
  return samples;
}

/// Midmean of each run.
std::vector<double> runs_of(const Json& time) {
  if (time.contains("run_us")) return time.at("run_us").get<std::vector<double>>();
  const std::vector<double> samples = samples_of(time);
  return samples.empty() ? std::vector<double>{} : std::vector<double>{midmean(samples)};
}

/// Adds a further run's samples to an entry that passed.
void add_samples(Json& entry, const Json& more) {
  Json& time = entry.at("attnbench").at("time");
  const Json& further = more.at("attnbench").at("time");
  if (time.is_null() || further.is_null()) return;
  std::vector<double> run_us = runs_of(time);
  const std::vector<double> further_us = runs_of(further);
  run_us.insert(run_us.end(), further_us.begin(), further_us.end());
  for (const Json& us : further.at("samples_us")) time.at("samples_us").push_back(us);
  const std::vector<double> samples = samples_of(time);
  const MedianInterval m = median_interval(samples);
  time["median_us"] = entry["real_time"] = m.median;
  time["lo_us"] = m.lo;
  time["hi_us"] = m.hi;
  time["runs"] = time.value("runs", 1) + further.value("runs", 1);
  if (!run_us.empty()) time["run_us"] = run_us;
  for (const char* count : {"iterations", "host_bound", "disturbed"}) {
    time[count] = time.value(count, 0) + further.value(count, 0);
  }
  Json& clocks = entry.at("attnbench")["clocks"];
  if (clocks.is_object() && more.at("attnbench").value("clocks", Json::object()).value("throttled", false)) {
    clocks["throttled"] = true;
  }
}

}  // namespace

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
