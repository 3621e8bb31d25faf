// The record of one case on one kernel: everything that a report may show. Every format is made from it.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/cases/case.h"
#include "harness/facts/device_info.h"
#include "harness/facts/skip_reason.h"
#include "harness/facts/time_result.h"
#include "harness/facts/verdict.h"

namespace attnbench {

/// kUndecided: no detector spoke against the outputs, but the limits accept made-up ones, too (judge/made_up.h).
enum class Status { kPass, kFail, kUndecided, kSkip, kError, kTimeout, kInvalidTime };
inline constexpr const char* kStatusNames[] = {"pass",  "fail",    "undecided",   "skip",
                                               "error", "timeout", "invalid_time"};
constexpr const char* status_name(Status s) { return kStatusNames[static_cast<int>(s)]; }
/// nullopt: no status has this name.
std::optional<Status> status_of(const std::string& name);

/// Wall time of the stages of one record, in seconds; 0 for a stage that was not reached.
struct StageSeconds {
  double setup_s = 0;   ///< tensors allocated and filled, kernel planned
  double verify_s = 0;  ///< the verified launch and its comparison
  double time_s = 0;    ///< warm-ups, samples with their cache flushes, and the second check of the outputs
};

struct Record {
  Case item;
  std::string kernel;  ///< "cpu", "cuda_simt"; empty if no kernel could be chosen
  std::string device;  ///< "cpu", "cuda:0"
  std::string repro;   ///< one command line that reproduces this record
  int64_t index = 0;   ///< position in the plan of the whole sweep, over all shards
  Status status = Status::kSkip;
  std::string reason;  ///< empty on pass
  std::string log;     ///< for an error or a timeout: the last lines that the worker process wrote
  std::optional<Verdict> check;
  std::optional<TimeResult> time;
  std::optional<Roofline> roofline;
  std::optional<CounterReading> counters;  ///< if the run requested them
  StageSeconds stages;
  std::shared_ptr<const nlohmann::ordered_json>
      entry;  ///< if it was loaded: as in the file, for everything else

  /// nullopt if nothing was timed.
  std::optional<double> median_us() const {
    return time && std::isfinite(time->median_us) ? std::optional(time->median_us) : std::nullopt;
  }
  const std::vector<double>& samples_us() const;
  /// Whether the kernel refused a case that expects it.
  bool refused() const { return status == Status::kPass && check && check->method == "refusal"; }

  void end(Status s, std::string why) {
    status = s;
    reason = std::move(why);
  }
  /// Ends with what `check` says. undecided: why it is no pass where it accepts made-up answers.
  void end_checked(const std::function<std::string()>& undecided);
  void skip(const SkipReason& why) { end(Status::kSkip, why.text); }
};

/// Bytes that DRAM read and wrote, divided by the bytes that the model says are needed. nullopt if one of
/// them is unknown.
std::optional<double> dram_over_model(const Record& r);

/// Name in reports: "<case id>/<kernel>".
std::string record_name(const Record& r);

/// The reason, with the detectors that fired: "... [max_z, guard]".
std::string reason_text(const Record& r);

/// max abs(z) for people; "exact" or "interval" without a z. Wrong, but not by z: "1.72^", or "-" without a z.
std::string z_cell(const Verdict& v);

/// One level of the host's cache, in the form of Google Benchmark.
struct HostCache {
  std::string type;  ///< "Data", "Instruction", "Unified"
  int level = 0;
  int64_t size = 0;     ///< bytes
  int num_sharing = 0;  ///< host threads that share it
};

/// What a run was asked to do, so that another process can compare it with its own task.
struct PlanInfo {
  std::string digest;  ///< digest of all cases, kernels and seeds
  int64_t size = 0;    ///< runs of the whole sweep, over all shards
  int shard = 1;       ///< number of this shard, from 1 to `shards`
  int shards = 1;
  std::vector<std::pair<std::string, std::string>> options;  ///< options that change what a record holds
};

/// A file of --plugin.
struct PluginInfo {
  std::string path;                                           ///< absolute
  std::string digest;                                         ///< of the file
  std::vector<std::string> kernels;                           ///< their names
  std::vector<std::pair<std::string, std::string>> versions;  ///< of Python and its packages; else empty
};

/// What a run was. It goes into `context`. Of a file, what it does not say is empty; then device.threads is 0.
struct RunContext {
  std::string name;  ///< name of the configuration
  std::vector<std::string> command_line;
  std::string date;  ///< ISO 8601, local time with offset
  std::string host;
  DeviceInfo device;
  std::string cpu_model;
  int cpu_threads = 0;
  Ceilings ceilings;
  std::string version, revision, build_type;
  bool complete = true;  ///< false: interrupted, more cases were planned
  int64_t planned = 0;   ///< planned pairs of case and kernel of this shard
  PlanInfo plan;
  std::vector<PluginInfo> plugins;
  double cpu_mhz = 0;        ///< highest clock of the first core in MHz; 0 if unknown; not read from files
  bool cpu_scaling = false;  ///< the governor may change the clock
  std::vector<HostCache> caches;
  std::vector<double> load_avg;  ///< over 1, 5 and 15 minutes, at the start of the run
};

/// Fills device, date, host, cpu, version and revision. The ceilings stay empty until they are measured.
RunContext describe_run(const DeviceInfo& device, const std::string& name,
                        const std::vector<std::string>& command_line);

}  // namespace attnbench
