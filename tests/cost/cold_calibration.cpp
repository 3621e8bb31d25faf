// Is `--cache cold` as cold as the other kernels of a model leave the caches? Times cases on a GPU in three
// ways, in random turns: with cold data alone (`cold_data`), with `cold`, and with real kernels between the
// launches (model_kernels.h).
//
//   attnbench_cold_calibration FILE.yaml... --kernel=NAME... [--device=cuda] [--out=FILE.json]
//
// Prints a line for each run. Exits 1 if a time with `cold` strays by more than 2 % from the one between real
// kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/config/sweep_file.h"
#include "harness/launch/launcher.h"
#include "harness/results/json.h"
#include "harness/timing/timing.h"
#include "tests/cost/model_kernels.h"

namespace attnbench {
namespace {

constexpr int kLeastRounds = 40, kMostRounds = 600;
constexpr double kTarget = 0.005;  ///< half width of the medians' intervals, as a share
constexpr double kLimit = 0.02;

enum Way { kColdData, kCold, kBetween, kWays };
constexpr const char* kWayNames[] = {"cold_data_us", "cold_us", "between_us"};

using Times = std::array<std::vector<double>, kWays>;

bool narrow(const std::vector<double>& us) {
  const MedianInterval m = median_interval(us);
  return (m.hi - m.lo) / 2 <= kTarget * m.median;
}

Times time_in_turns(Device& device, ModelKernels& model, const std::function<void()>& launch) {
  Times us;
  std::mt19937 order(1);
  std::array<Way, kWays> turns = {kColdData, kCold, kBetween};
  for (const Way way : turns)
    device.time_launch(launch, way == kCold ? CacheMode::kCold : CacheMode::kColdData);
  for (int round = 0; round < kMostRounds; ++round) {
    if (round >= kLeastRounds && std::all_of(us.begin(), us.end(), narrow)) break;
    std::shuffle(turns.begin(), turns.end(), order);
    for (const Way way : turns) {
      if (way == kBetween) model.enqueue();
      us[way].push_back(
          device.time_launch(launch, way == kCold ? CacheMode::kCold : CacheMode::kColdData).us);
    }
  }
  return us;
}

int calibrate(const std::vector<std::string>& files, const std::vector<std::string>& kernels,
              const std::string& device_name, const std::string& out,
              const std::vector<std::string>& command) {
  const auto device = open_device(device_name);
  ModelKernels model(static_cast<cudaStream_t>(device->launch_context().stream));
  const KernelTable table = builtin_kernels();
  nlohmann::ordered_json results = {
      {"context", context_to_json(describe_run(device->info(), "cold", command))},
      {"runs", nlohmann::ordered_json::array()}};
  double worst = 0;
  for (const std::string& file : files) {
    for (const Case& item : expand(load_sweep_file(file, {}, std::nullopt)).cases) {
      for (const Kernel* kernel : select_kernels(table, item.params.op, DeviceKind::kCuda, kernels)) {
        if (refusal(*kernel, table, *device, item)) continue;
        Workload workload(*device, item);
        Launcher launcher(*kernel, table, *device, workload);
        const Times us = time_in_turns(*device, model, [&] { launcher.launch(); });
        nlohmann::ordered_json run = {{"id", item.id}, {"kernel", kernel->name}};
        for (int way = 0; way < kWays; ++way) run[kWayNames[way]] = median_interval(us[way]).median;
        run["rounds"] = us[0].size();
        const double strays = run["cold_us"].get<double>() / run["between_us"].get<double>() - 1;
        worst = std::max(worst, std::fabs(strays));
        fmt::print("{:8.2f} us cold data, {:8.2f} cold, {:8.2f} between real kernels, {:+5.1f} %{} {} {}\n",
                   run["cold_data_us"].get<double>(), run["cold_us"].get<double>(),
                   run["between_us"].get<double>(), 100 * strays, std::fabs(strays) > kLimit ? " !" : "  ",
                   item.id, kernel->name);
        results["runs"].push_back(run);
      }
    }
  }
  if (results["runs"].empty()) {
    fmt::print(stderr, "cold_calibration: no kernel takes any of the cases\n");
    return 2;
  }
  fmt::print("{} runs, `cold` strays by {:.1f} % at most\n", results["runs"].size(), 100 * worst);
  if (!out.empty()) std::ofstream(out) << results_text(results);
  return worst > kLimit ? 1 : 0;
}

}  // namespace
}  // namespace attnbench

int main(int argc, char** argv) {
  std::vector<std::string> files, kernels;
  std::string device = "cuda", out;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i], name = arg.substr(0, arg.find('='));
    const std::string value = name == arg ? "" : arg.substr(name.size() + 1);
    if (name == "--kernel") {
      kernels.push_back(value);
    } else if (name == "--device") {
      device = value;
    } else if (name == "--out") {
      out = value;
    } else if (arg.rfind("--", 0) == 0) {
      fmt::print(stderr, "cold_calibration: unknown option {}; the head of cold_calibration.cpp lists them\n",
                 name);
      return 2;
    } else {
      files.push_back(arg);
    }
  }
  try {
    return attnbench::calibrate(files, kernels, device, out, {argv, argv + argc});
  } catch (const std::exception& e) {
    fmt::print(stderr, "cold_calibration: {}\n", e.what());
    return 2;
  }
}
