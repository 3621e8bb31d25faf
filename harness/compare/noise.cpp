#include "harness/compare/noise.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/results/json.h"
#include "harness/results/load.h"

namespace attnbench {

std::map<std::string, RunNoise> noise_between(std::span<const ResultSet> runs) {
  std::map<std::string, std::vector<double>> logs;
  for (const ResultSet& run : runs) {
    for (const Record& r : run.results) {
      if (r.status != Status::kPass || !r.median_us()) continue;
      double us =
          r.samples_us().empty() ? r.time->median_us : band_mean(r.samples_us(), band_of(r.time->clock));
      if (r.time->cores_us > 0) us /= r.time->cores_us;  // in the unit in which they are compared
      if (us > 0) logs[record_name(r)].push_back(std::log(us));
    }
  }
  std::map<std::string, RunNoise> out;
  for (const auto& [name, x] : logs) {
    if (x.size() < 2) continue;
    double mean = 0, squares = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) squares += (v - mean) * (v - mean);
    out[name] = {std::sqrt(squares / static_cast<double>(x.size() - 1)), static_cast<int>(x.size())};
  }
  return out;
}

std::string noise_to_text(const NoiseFile& n) {
  nlohmann::ordered_json j;
  j["attnbench_noise"] = 1;
  const DeviceInfo& d = n.context.device;
  j["device"] = {{"kind", device_kind_name(d.kind)},
                 {"model", d.model},
                 {"driver", d.driver},
                 {"cuda", d.runtime},
                 {"threads", d.threads}};
  j["build_type"] = n.context.build_type;
  j["revision"] = n.context.revision;
  j["date"] = n.context.date;
  j["host"] = n.context.host;
  j["pairs"] = n.pairs;
  j["false_alarms"] = n.false_alarms;
  j["min_effect"] = n.min_effect;
  j["noise"] = nlohmann::ordered_json::object();
  for (const auto& [name, noise] : n.noise_of) {
    j["noise"][name] = {{"sigma", noise.sigma}, {"runs", noise.runs}};
  }
  return dump_json(j, 2) + "\n";
}

NoiseFile load_noise(const std::string& path) {
  const std::string text = read_results_text(path);
  NoiseFile out;
  try {
    const auto j = nlohmann::ordered_json::parse(text);
    if (!j.is_object() || j.value("attnbench_noise", 0) != 1) {
      throw ResultsError(
          fmt::format("{}: error: not a noise file; attnbench gate --calibrate makes one", path));
    }
    out.context = context_from_json({{"attnbench", j}});
    out.pairs = j.value("pairs", 0);
    out.false_alarms = j.value("false_alarms", 0);
    out.min_effect = j.value("min_effect", 0.0);
    for (const auto& [name, n] : j.at("noise").items()) {
      RunNoise noise{n.at("sigma").get<double>(), n.at("runs").get<int>()};
      if (!(noise.sigma >= 0) || noise.runs < 2) {
        throw ResultsError(fmt::format("{}: error: noise of '{}' is not possible", path, name));
      }
      out.noise_of[name] = noise;
    }
  } catch (const ResultsError&) {
    throw;
  } catch (const std::exception& e) {
    throw ResultsError(fmt::format("{}: error: not a noise file: {}", path, e.what()));
  }
  return out;
}

}  // namespace attnbench
