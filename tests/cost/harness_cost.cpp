// Cost of the harness without kernels: expansion of a large sweep, overhead of a case, of watching timed
// launches, host memory.
//
//   attnbench_harness_cost --device=cpu --benchmark_out=FILE.json --benchmark_out_format=json
//
// --program=FILE runs another attnbench than the one that it was built with. --kernel=NAME runs only that
// kernel (default on the cpu: cpu; on a GPU: all).
//
// Overhead and memory are those of the whole program, run as a user runs it.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/cases/cost.h"
#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr int kCases = 64;
constexpr int kPairs = 3;  ///< watched and trusted runs
std::string g_device = "cpu";
std::string g_kernel;
std::string g_program = ATTNBENCH_PROGRAM;
fs::path g_scratch;

std::string write(const std::string& name, const std::string& text) {
  std::ofstream(g_scratch / name) << text;
  return (g_scratch / name).string();
}

struct Outcome {
  double wall_s = 0;
  double max_rss_mib = 0;  ///< largest process of the run
};

/// Runs the program without its output. Ends this process if the program fails, because no figure is better
/// than a wrong one.
Outcome run_program(const std::vector<std::string>& args, const std::vector<int>& allowed) {
  std::vector<char*> argv = {g_program.data()};
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = fork();
  if (pid == 0) {
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(null, fd);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  wait4(pid, &status, 0, &usage);
  Outcome o;
  o.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  o.max_rss_mib = static_cast<double>(usage.ru_maxrss) / 1024;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (std::find(allowed.begin(), allowed.end(), code) == allowed.end()) {
    fmt::print(stderr, "harness_cost: the program ended with {}\n", code);
    std::exit(1);
  }
  return o;
}

void expand_100000_cases(benchmark::State& state) {
  const std::string file = write("large.yaml", R"(name: large
defaults: {mask: causal, kv: paged}
sweeps:
  - name: all
    batch: [q1, q2, q3, q4, 8q1s1k, 32q1s4k, 4q512, 64q1s8k, q512s2k_31q1s1k, 128q1s2k]
    heads: [1/1, 2/1, 4/1, 8/1, 8/2, 16/2, 16/4, 32/4, 32/8, 64/8]
    head_dim: [32, 48, 64, 80, 96, 112, 128, 160, 192, 256]
    block_size: [1, 8, 16, 32, 48, 64, 80, 96, 128, 256]
    softcap: [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
)");
  std::size_t cases = 0;
  for ([[maybe_unused]] auto _ : state) cases = expand(load_sweep_file(file, {}, std::nullopt)).cases.size();
  if (cases != 100000) state.SkipWithError(fmt::format("{} cases", cases).c_str());
  state.counters["cases"] = static_cast<double>(cases);
}

/// Wall time of a run of kCases tiny cases, minus start-up (a run without cases), verification and samples.
void overhead_of_a_case(benchmark::State& state, const std::string& cache) {
  std::string batches;
  for (int i = 1; i <= kCases; ++i) batches += fmt::format("{}q{}", i == 1 ? "" : ", ", i);
  const std::string file =
      write("tiny.yaml", "name: tiny\nsweeps: [{heads: 2/1, head_dim: 16, batch: [" + batches + "]}]\n");
  const fs::path out = g_scratch / "tiny";
  std::vector<std::string> args = {"run", file,           "--device", g_device,     "--cache",
                                   cache, "--quiet",      "--out",    out.string(), "--max-samples",
                                   "10",  "--no-ceilings"};
  if (!g_kernel.empty()) args.insert(args.end(), {"--kernel", g_kernel});
  std::vector<std::string> none = args;
  none.insert(none.end(), {"--filter", "^$"});
  for ([[maybe_unused]] auto _ : state) {
    const double start_up = run_program(none, {6}).wall_s;
    const double wall = run_program(args, {0, 4}).wall_s;
    const auto results = nlohmann::json::parse(std::ifstream(out / "results.json"));
    double rest = wall - start_up, setup = 0;
    int runs = 0;
    for (const auto& entry : results["benchmarks"]) {
      const auto& a = entry["attnbench"];
      if (a["time"].is_null()) continue;
      ++runs;
      setup += a["stages"]["setup_s"].get<double>();
      rest -= a["stages"]["verify_s"].get<double>();
      for (const auto& us : a["time"]["samples_us"]) rest -= us.get<double>() * 1e-6;
    }
    if (runs < kCases) return state.SkipWithError("cases are missing");
    state.SetIterationTime(rest / runs);
    state.counters["start_up_ms"] = 1e3 * start_up;
    state.counters["setup_ms"] = 1e3 * setup / runs;
    state.counters["runs"] = runs;
  }
}

/// Seconds and medians of the runs of a results file, by case and kernel.
struct Run {
  double wall_s, median_us;
};
std::map<std::string, Run> runs_of(const fs::path& out) {
  std::map<std::string, Run> runs;
  const auto results = nlohmann::json::parse(std::ifstream(out / "results.json"));
  for (const auto& entry : results["benchmarks"]) {
    const auto& a = entry["attnbench"];
    if (a["time"].is_null()) continue;
    double wall_s = 0;
    for (const char* stage : {"setup_s", "verify_s", "time_s"}) wall_s += a["stages"][stage].get<double>();
    runs[entry["name"]] = {wall_s, a["time"]["median_us"]};
  }
  return runs;
}

double median_of(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + std::ssize(x) / 2, x.end());
  return x[x.size() / 2];
}

/// What watching adds to a case: wall time, and the median time of its launches. 8,192 tokens on a GPU, 512 on
/// the cpu device.
void watching(benchmark::State& state) {
  const std::string batches = g_device == "cpu" ? "[8q64, 2q256, 1q512]" : "[16q512, 8q1k, 2q4k, 1q8k]";
  const std::string file = write("watched.yaml",
                                 "name: watched\nsweeps: [{heads: 16/16, head_dim: 128, mask: causal, "
                                 "batch: " +
                                     batches + "}]\n");
  std::vector<double> longer, slower;
  for ([[maybe_unused]] auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int pair = 0; pair < kPairs; ++pair) {
      std::map<std::string, Run> of[2];
      for (const bool trust : {false, true}) {
        const fs::path out = g_scratch / (trust ? "trusted" : "watched");
        std::vector<std::string> args = {"run",     file,    "--device",   g_device,
                                         "--quiet", "--out", out.string(), "--no-ceilings"};
        if (!g_kernel.empty()) args.insert(args.end(), {"--kernel", g_kernel});
        if (trust) args.push_back("--trust");
        run_program(args, {0, 4});
        of[trust] = runs_of(out);
      }
      for (const auto& [name, trusted] : of[true]) {
        longer.push_back(100 * (of[false].at(name).wall_s / trusted.wall_s - 1));
        slower.push_back(100 * (of[false].at(name).median_us / trusted.median_us - 1));
      }
    }
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  if (longer.empty()) return state.SkipWithError("nothing was timed");
  state.counters["runs"] = static_cast<double>(longer.size());
  state.counters["longer_percent"] = median_of(longer);
  state.counters["slower_percent"] = median_of(slower);
}

/// Largest resident memory of a run on this many keys. On the cpu device, the tensors are subtracted, because
/// they are in host memory. Launches are not watched, which would take a second copy of the tensors.
void host_memory(benchmark::State& state) {
  const int64_t keys = state.range(0);
  const std::string chosen = fmt::format("{{kv: paged, block_size: 64, heads: 32/8, batch: q1s{}}}", keys);
  CaseParams params;
  params.kv = KvSource::kPaged;
  params.block_size = 64;
  params.seqs = {{1, static_cast<int32_t>(keys)}};
  const double tensors = cost_of(params).device_bytes / (1 << 20);
  std::vector<std::string> args = {
      "run",           "--case",  chosen,         "--device",
      g_device,        "--quiet", "--out",        (g_scratch / "memory").string(),
      "--max-samples", "10",      "--no-ceilings"};
  args.push_back("--trust");
  if (!g_kernel.empty()) args.insert(args.end(), {"--kernel", g_kernel});
  for ([[maybe_unused]] auto _ : state) {
    const Outcome o = run_program(args, {0, 4});
    state.SetIterationTime(o.wall_s);
    state.counters["tensors_mib"] = tensors;
    state.counters["host_mib"] = o.max_rss_mib - (g_device == "cpu" ? tensors : 0);
  }
}

}  // namespace
}  // namespace attnbench

int main(int argc, char** argv) {
  using namespace attnbench;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--device=", 0) == 0) {
      g_device = arg.substr(9);
    } else if (arg.rfind("--kernel=", 0) == 0) {
      g_kernel = arg.substr(9);
    } else if (arg.rfind("--program=", 0) == 0) {
      g_program = arg.substr(10);
    } else {
      rest.push_back(argv[i]);
    }
  }
  if (g_device == "cpu" && g_kernel.empty()) g_kernel = "cpu";
  int count = static_cast<int>(rest.size());
  rest.push_back(nullptr);
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  std::string name = (fs::temp_directory_path() / "harness_cost.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return 2;
  g_scratch = name;
  benchmark::AddCustomContext("device", g_device);
  benchmark::RegisterBenchmark("expand_100000_cases", expand_100000_cases)->Unit(benchmark::kMillisecond);
  for (const char* cache : {"cold", "hot"}) {
    benchmark::RegisterBenchmark((std::string("overhead_of_a_case/") + cache).c_str(), overhead_of_a_case,
                                 cache)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(1);
  }
  benchmark::RegisterBenchmark("watching", watching)->UseManualTime()->Iterations(1);
  auto* memory = benchmark::RegisterBenchmark("host_memory", host_memory);
  memory->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(1)->ArgName("keys");
  for (const int64_t keys : {1 << 10, 1 << 14, 1 << 16, 1 << 17}) memory->Arg(keys);
  benchmark::RunSpecifiedBenchmarks();
  std::error_code ignored;
  fs::remove_all(g_scratch, ignored);
}
