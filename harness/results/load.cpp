#include "harness/results/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/config/near_file.h"
#include "harness/plain_file.h"
#include "harness/results/fields.h"
#include "harness/results/json.h"

namespace attnbench {
namespace {

using json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// The current position in the file, for errors.
struct Place {
  std::string file;   ///< "PATH" or "PATH:LINE"
  std::string entry;  ///< "benchmarks[3]", empty for the file itself

  [[noreturn]] void fail(const std::string& what) const {
    throw ResultsError(fmt::format("{}: error: {}{}{}", file, entry, entry.empty() ? "" : ": ", what));
  }
};

/// The member, or nullptr if it is absent or null.
const json* find_member(const json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  return j.is_object() && it != j.end() && !it->is_null() ? &*it : nullptr;
}

/// Calls `read`. Its errors get the place.
template <class Read>
auto read_at(const Place& at, const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    at.fail(e.what());
  } catch (const json::exception& e) {
    at.fail(e.what());
  }
}

/// For fields that a file need not have.
Fields fields_of(const json& j) { return {j, nullptr, /*whole=*/false}; }

/// Microseconds of one unit of Google Benchmark's time_unit.
double unit_us(const std::string& unit) {
  if (unit == "ns" || unit.empty()) return 1e-3;
  if (unit == "us") return 1.0;
  if (unit == "ms") return 1e3;
  if (unit == "s") return 1e6;
  throw Error(fmt::format("time_unit '{}' is not one of ns, us, ms, s", unit));
}

Record plain_entry(const json& entry) {
  Record r;
  bool failed = false, skipped = false;
  double time = NAN;
  std::string unit;
  Fields f = fields_of(entry);
  f("name", r.item.id);
  if (r.item.id.empty()) throw Error("'name' is missing");
  f("error_occurred", failed);
  f("skipped", skipped);
  if (failed || skipped) {
    f(failed ? "error_message" : "skip_message", r.reason);
    r.status = failed ? Status::kError : Status::kSkip;
    return r;
  }
  f("real_time", time);
  f("time_unit", unit);
  if (!std::isfinite(time)) throw Error("'real_time' is missing");
  r.status = Status::kPass;
  r.time.emplace().samples_us.push_back(time * unit_us(unit));
  return r;
}

/// Median and range of the repetitions.
void finish_plain(TimeResult& t) {
  std::vector<double> s = t.samples_us;
  std::ranges::sort(s);
  t.median_us = (s[(s.size() - 1) / 2] + s[s.size() / 2]) / 2;
  t.lo_us = s.front();
  t.hi_us = s.back();
}

/// Gathers entries. Repetitions of plain files are joined; a later entry of attnbench replaces an earlier
/// one.
class Gatherer {
 public:
  explicit Gatherer(ResultSet& set) : set_(set) {}

  void add(const json& entry) {
    if (!entry.is_object()) throw Error("not an object");
    if (find_member(entry, "attnbench") != nullptr) return add_own(entry);
    std::string type;
    fields_of(entry)("run_type", type);
    if (type == "aggregate") {
      ++aggregates_;
      return;
    }
    Record r = plain_entry(entry);
    const auto [it, fresh] = index_.try_emplace("plain\n" + r.item.id, set_.results.size());
    if (fresh) {
      set_.results.push_back(std::move(r));
    } else if (Record& first = set_.results[it->second]; r.status != Status::kPass) {
      first.end(r.status, r.reason);
    } else if (first.time) {
      first.time->samples_us.push_back(r.time->samples_us.front());
    } else {
      first.time = r.time;
    }
  }

  void finish() {
    if (set_.results.empty() && aggregates_ > 0) {
      Place{set_.path, ""}.fail(
          "holds only aggregates; write it without --benchmark_report_aggregates_only, as the samples are "
          "needed");
    }
    for (Record& r : set_.results) {
      if (r.entry == nullptr && r.time) finish_plain(*r.time);
    }
  }

 private:
  void add_own(const json& entry) {
    Record r = record_of_file(entry);
    const auto whole = std::make_shared<json>(entry);
    if (set_.context_entry) fill_params(*whole, *set_.context_entry);
    const auto served = whole->value("/attnbench/params/served"_json_pointer, json());
    if (served.is_object() && served.contains("stratum")) r.item.params.served = served_from_json(served);
    r.entry = whole;
    const auto [it, fresh] =
        index_.try_emplace(r.item.id + "\n" + r.kernel + "\n" + r.device, set_.results.size());
    if (fresh) {
      set_.results.push_back(std::move(r));
    } else {
      set_.results[it->second] = std::move(r);
      ++set_.replaced;
    }
  }

  ResultSet& set_;
  std::map<std::string, std::size_t> index_;
  int aggregates_ = 0;
};

void parse_journal(const std::string& text, ResultSet& set) {
  Gatherer gatherer(set);
  int line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Place at{fmt::format("{}:{}", set.path, line_number), ""};
    const json entry = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_discarded()) {
      const bool last = begin >= text.size() || text.find_first_not_of(" \t\r\n", begin) == std::string::npos;
      if (!last) at.fail("not JSON, and not the last line either");
      ++set.torn_lines;
      break;
    }
    read_at(at, [&] { gatherer.add(entry); });
  }
  gatherer.finish();
}

void parse_whole(const std::string& text, ResultSet& set) {
  const Place at{set.path, ""};
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) at.fail("the file is empty");
  json root;
  try {
    root = json::parse(text);
  } catch (const json::parse_error& e) {
    if (!begins_as_json(text)) at.fail(kNoResultsFile);
    std::error_code ec;
    const fs::path journal = fs::path(set.path).parent_path() / "journal.jsonl";
    at.fail(fmt::format("not JSON: it breaks off or is damaged at byte {} of {}{}",
                        std::min(e.byte, text.size()), text.size(),
                        fs::exists(journal, ec) ? "; " + journal.string() + " has every finished run" : ""));
  } catch (const json::out_of_range& e) {  // a number that does not fit in a double
    at.fail(fmt::format("not JSON: {}", e.what()));
  }
  const json* benchmarks = find_member(root, "benchmarks");
  if (benchmarks == nullptr || !benchmarks->is_array()) {
    if (find_member(root, "rows") != nullptr && find_member(root, "exit_code") != nullptr)
      at.fail(
          "the outcome of a comparison, not results: give the results that it compared (of a gate, one of its "
          "turns: a folder N-base or N-new beside this file)");
    at.fail("not a results file: it has no list 'benchmarks'");
  }
  if (const json* context = find_member(root, "context")) {
    check_schema(*context, set.path);
    set.context = read_at({set.path, "context"}, [&] { return context_from_json(*context); });
    set.context_entry = std::make_shared<const json>(*context);
  }
  Gatherer gatherer(set);
  for (std::size_t i = 0; i < benchmarks->size(); ++i) {
    read_at({set.path, fmt::format("benchmarks[{}]", i)}, [&] { gatherer.add((*benchmarks)[i]); });
  }
  gatherer.finish();
}

constexpr int kMostNested = 64;

/// Whether brackets outside of strings are nested deeper than in any results. With `lines`, each line is a
/// text of its own and may be cut short.
bool nested_too_deeply(std::string_view text, bool lines) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostNested) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
    if (lines && c == '\n') {
      depth = 0;
      in_string = false;
    }
  }
  return false;
}

}  // namespace

std::string read_results_text(const fs::path& file) {
  if (const std::string why = why_no_file(file, "a file of results"); !why.empty())
    Place{file.string(), ""}.fail(why);
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in)
    Place{file.string(), ""}.fail(
        fmt::format("cannot be read: {}; give a results.json, or the folder of a run that holds one{}",
                    std::strerror(errno), near_file(file)));
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) Place{file.string(), ""}.fail(fmt::format("cannot be read: {}", std::strerror(errno)));
  if (nested_too_deeply(text.view(), file.extension() == ".jsonl")) {
    Place{file.string(), ""}.fail(fmt::format("nested more than {} deep: no file of results", kMostNested));
  }
  return std::move(text).str();
}

void check_schema(const json& context, const std::string& path) {
  const json* own = find_member(context, "attnbench");
  if (own == nullptr) return;  // a file of Google Benchmark itself; its entries have no parameters
  const Place at{path, "context.attnbench"};
  double schema = 1;
  read_at(at, [&] { fields_of (*own)("schema", schema); });
  if (schema > kResultsSchema) {
    at.fail(
        fmt::format("'schema' is {}, this program reads up to {}: use the attnbench that wrote the file, or "
                    "a newer one",
                    schema, kResultsSchema));
  }
  if (schema < kFirstSchemaWithDefaults) return;
  const json* defaults = find_member(*own, "default_params");
  if (defaults == nullptr || !defaults->is_object()) {
    at.fail(
        "'default_params' is missing, so the parameters that entries leave out are lost: restore the file");
  }
}

ResultSet parse_results(const std::string& text, const std::string& path) {
  ResultSet set;
  set.path = path;
  fs::path(path).extension() == ".jsonl" ? parse_journal(text, set) : parse_whole(text, set);
  return set;
}

namespace {

/// ": g/1-base, g/2-new": the folders in DIR that hold a turn's results; empty if there are none. 0-new holds
/// none: that run only asked for the device.
std::string runs_below(const fs::path& dir) {
  std::map<std::pair<int, std::string>, std::string> runs;  // in the order of the turns: 9-new before 10-base
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(dir, ec)) {
    const std::string name = entry.path().filename().string();
    const int turn = std::atoi(name.c_str());
    if (turn > 0 && fs::exists(entry.path() / "results.json", ec)) runs[{turn, name}] = entry.path().string();
  }
  std::vector<std::string> paths;
  for (const auto& [turn, path] : runs) paths.push_back(path);
  return paths.empty() ? "" : fmt::format(": {}", fmt::join(paths, ", "));
}

}  // namespace

ResultSet load_results(const std::string& path) {
  std::error_code ec;
  if (!fs::is_directory(path, ec)) return parse_results(read_results_text(path), path);
  const fs::path whole = fs::path(path) / "results.json", journal = fs::path(path) / "journal.jsonl";
  const bool has_whole = fs::exists(whole, ec), has_journal = fs::exists(journal, ec);
  if (!has_whole && !has_journal && fs::exists(fs::path(path) / "gate.jsonl", ec)) {
    Place{path, ""}.fail(
        fmt::format("the folder of a gate, which holds several runs: give one of them{}", runs_below(path)));
  }
  if (!has_whole && !has_journal)
    Place{path, ""}.fail("the folder holds neither results.json nor journal.jsonl");
  if (!has_whole) return parse_results(read_results_text(journal), journal.string());
  ResultSet set = parse_results(read_results_text(whole), whole.string());
  if (!set.context.complete && has_journal) {
    // A killed run has its results.json from the start, and its finished records in the journal.
    ResultSet finished = parse_results(read_results_text(journal), journal.string());
    if (finished.results.size() > set.results.size()) {
      finished.context = set.context;
      finished.context_entry = set.context_entry;
      return finished;
    }
  }
  return set;
}

}  // namespace attnbench
