// Options that several subcommands share: which cases, which device, which kernels.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/cli/cli.h"
#include "harness/device/device.h"

namespace attnbench::cli {

/// CONFIG..., --case, --set, --seed, --filter.
struct CaseOptions {
  std::vector<std::string> configs;
  std::vector<std::string> chosen;  ///< --case: inline mappings, and ids of cases of the configs
  std::vector<std::string> overrides;
  std::optional<uint64_t> seed;
  std::string filter;

  void add(CLI::App& command);
};

struct Cases {
  std::string name;    ///< of the configuration(s)
  std::string kernel;  ///< when --case was "id/kernel"
  std::vector<Case> cases;
  std::vector<std::string> check;  ///< of the file, or of the files, where they agree
  std::string check_conflict;      ///< which files do not; empty where all do
  int64_t duplicates = 0;
  int64_t excluded = 0;
  CoverCounts cover;
  int64_t filtered = 0;
};

/// Loads, expands and filters. Throws ConfigError, UsageError.
Cases load_cases(const CaseOptions& options);

/// --device auto|cpu|cuda|cuda:N. `auto` takes a GPU where one works and says in one line why not where it
/// does not.
std::unique_ptr<Device> open_chosen_device(const std::string& name, int threads, bool quiet);

/// The devices that --device names, without opening them: one, or with `all` every GPU. `auto` as above.
/// Throws UsageError.
std::vector<std::string> chosen_devices(const std::string& name, bool quiet);

/// Checks the names of --kernel against the table. Throws UsageError with the nearest name and those that
/// exist.
void check_kernel_names(const std::vector<std::string>& names, KernelTable table);

/// What `auto` is where kernels are named: cpu where all of them are of it; other devices as given. Throws
/// UsageError where all need a GPU and none works.
std::string device_for(const std::string& device, const std::vector<std::string>& names, KernelTable table);

/// --cache, --graph, --no-ceilings, --min-time, --max-samples.
struct TimingFlags {
  std::string cache = "cold";
  bool graph = false;
  bool no_ceilings = false;
  double min_time_s = 0;
  int max_samples = TimingOptions{}.max_samples;

  void add(CLI::App& command);
  TimingOptions options() const;
};

/// "attnbench 0.1.0 (1a2b3c4d5e6f, Release build)".
std::string build_text();

/// For options that take a number: what is wrong with the text, empty where nothing is. Not a number (nan) is
/// none.
std::function<std::string(const std::string&)> number_in(double lo, double hi);

/// For options that name a file or a folder: what is wrong with the text, empty where nothing is.
std::string has_a_name(const std::string& text);

/// Throws UsageError where `out` is one of the results files that are read, or lies in one of the folders as
/// such.
void check_no_input(const std::string& out, const std::vector<std::string>& inputs);

/// "1 case", "2 cases".
std::string counted(int64_t count, const char* noun);

/// "Did you mean 'x'? " or nothing.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace attnbench::cli
