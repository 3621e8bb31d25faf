// Reads results back, as far as a comparison needs them: results.json, the journal of a run, or a plain file
// of Google Benchmark.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/error.h"
#include "harness/results/record.h"

namespace attnbench {

inline constexpr char kNoResultsFile[] =
    "this is no results file: results.json and journal.jsonl of a run are, and 'attnbench run CONFIG' writes them";

/// Whether a text that is no JSON seems to be meant as JSON. `text` has a character that is no space.
inline bool begins_as_json(std::string_view text) {
  const char first = text[text.find_first_not_of(" \t\r\n")];
  return first == '{' || first == '[';
}

/// what() is "PATH: error: ..." or "PATH:LINE: error: ...".
class ResultsError : public Error {
 public:
  explicit ResultsError(const std::string& what)
      : Error(what, kExitUsage, "") {}  // what() names the path, so no prefix
};

struct ResultSet {
  std::string path;
  RunContext context;
  std::vector<Record> results;  ///< of a plain file, without a kernel
  int torn_lines = 0;           ///< journal: 1 if a crash cut the last line short
  int replaced = 0;  ///< entries that a later one of the same name and device replaced (a resumed run)
  std::shared_ptr<const nlohmann::ordered_json> context_entry;  ///< as in the file; null in a journal
};

/// The bytes of a results file. Throws ResultsError with the system's reason. Refuses a device, which may
/// never end, and JSON nested deeper than results are, which could exhaust the stack.
std::string read_results_text(const std::filesystem::path& file);

/// Reads `path`. A name that ends in ".jsonl" is a journal. A folder stands for its results.json. It stands
/// for its journal.jsonl if results.json is missing, or belongs to an interrupted run and has fewer results.
/// In a Google Benchmark file, entries of one name are samples of one result, aggregates are ignored, and
/// lo_us, hi_us are the range. Throws ResultsError.
ResultSet load_results(const std::string& path);

/// The same from text. `path` appears in errors and decides between journal and results.
ResultSet parse_results(const std::string& text, const std::string& path);

/// Throws ResultsError if the entries of a file with this `context` cannot be read back completely. This is
/// so if its schema is newer than kResultsSchema, or if it omits parameters (results_text) without listing
/// the defaults.
void check_schema(const nlohmann::ordered_json& context, const std::string& path);

}  // namespace attnbench
