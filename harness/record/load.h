// Results read back, as far as a comparison needs them: results.json, the journal of a run, or a plain file
// of Google Benchmark.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/error.h"
#include "harness/record/record.h"

namespace attnbench {

/// what() is "PATH: error: ..." or "PATH:LINE: error: ...".
class ResultsError : public Error {
 public:
  explicit ResultsError(const std::string& what)
      : Error(what, kExitUsage, "") {}  // it names its place itself
};

/// One run's part of a result.
struct LoadedRun {
  double us = 0;            ///< midmean of its samples
  std::size_t samples = 0;  ///< how many of samples_us are its own, in order; 0 where unknown
  /// CPU: medians of the probes beside its samples; 0 where none.
  double cores_us = 0, memory_us = 0, handover_us = 0;
};

struct LoadedResult {
  std::string name;  ///< "<id>/<kernel>"
  std::string id;
  std::string kernel;  ///< empty in a plain Google Benchmark file
  std::string op, sweep, device, repro, reason, bound;
  Status status = Status::kPass;
  std::optional<double> median_us;  ///< nullopt where nothing was timed
  std::optional<double> lo_us, hi_us;
  std::vector<double> samples_us;
  std::optional<double> sol, tflops, gbs;
  std::string cache;  ///< "cold", "hot", or empty where unknown
  bool graph = false;
  std::string
      check;  ///< how it was verified: "off", "sampled", "full and invariants", ...; empty where unknown
  std::shared_ptr<const nlohmann::json> entry;  ///< as it stands in the file, for what is not above
  std::optional<double> sm_mhz;                 ///< median SM clock while it was timed
  bool throttled = false;
  int disturbed = 0;               ///< CPU: samples during which others took a core away
  int runs = 1;                    ///< how many runs the samples come from
  std::vector<LoadedRun> per_run;  ///< where runs were pooled; empty for one run
  /// CPU: medians of the probes beside the samples; 0 where none.
  double cores_us = 0, memory_us = 0, handover_us = 0;
};

/// What decides whether two files may be compared; empty or 0 where the file does not say.
struct LoadedContext {
  std::string name, version, revision, build_type, date, host;
  std::string device_kind, device_model, driver, cuda;
  int device_threads = 0;
  bool complete = true;
};

struct ResultSet {
  std::string path;
  LoadedContext context;
  std::vector<LoadedResult> results;
  int torn_lines = 0;  ///< journal: 1 where the last line was cut short by a crash
  int replaced = 0;    ///< entries that a later one of the same name and device replaced (a resumed run)
  std::shared_ptr<const nlohmann::json> context_entry;  ///< as it stands in the file; null in a journal
};

/// The bytes of a file of results. Throws ResultsError, with the system's reason; of a device too, which may
/// never end, and of JSON that is nested as no results are: who walks it would run out of stack.
std::string read_results_text(const std::filesystem::path& file);

/// Reads `path`. A name that ends in ".jsonl" is read as a journal. A folder stands for its results.json, or
/// for its journal.jsonl where that is missing or, of an interrupted run, has less. Google Benchmark: entries
/// of one name are the samples of one result, aggregates are left out, and lo_us, hi_us are the range. Throws
/// ResultsError.
ResultSet load_results(const std::string& path);

/// The same from text; `path` is named in errors and decides between journal and results.
ResultSet parse_results(const std::string& text, const std::string& path);

/// Throws ResultsError if the entries of a file with this `context` cannot be read back whole: a schema newer
/// than kResultsSchema, or parameters left out (results_text) without the defaults that stand for them.
void check_schema(const nlohmann::json& context, const std::string& path);

}  // namespace attnbench
