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
#include "harness/results/json.h"
#include "harness/results/json_read.h"

namespace attnbench {
namespace {

using nlohmann::json;
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

std::string text_of(const json& j, const char* key, const Place& at) {
  const json* v = find_member(j, key);
  if (v == nullptr) return "";
  if (!v->is_string()) at.fail(fmt::format("'{}' is not a string", key));
  return v->get<std::string>();
}

std::optional<double> number_of(const json& j, const char* key, const Place& at) {
  const json* v = find_member(j, key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number()) at.fail(fmt::format("'{}' is not a number", key));
  const double x = v->get<double>();
  return std::isfinite(x) ? std::optional(x) : std::nullopt;
}

bool flag_of(const json& j, const char* key, bool absent, const Place& at) {
  const json* v = find_member(j, key);
  if (v == nullptr) return absent;
  if (!v->is_boolean()) at.fail(fmt::format("'{}' is not true or false", key));
  return v->get<bool>();
}

Status parse_status(const std::string& name, const Place& at) {
  if (const auto s = status_of(name)) return *s;
  at.fail(fmt::format("status '{}' is not one of {}", name, fmt::join(kStatusNames, ", ")));
}

/// The finite numbers of a list; empty if it is absent.
std::vector<double> numbers_of(const json& j, const char* key, const Place& at) {
  std::vector<double> out;
  const json* list = find_member(j, key);
  if (list == nullptr) return out;
  if (!list->is_array()) at.fail(fmt::format("'{}' is not a list", key));
  for (const json& v : *list) {
    if (v.is_null()) continue;
    if (!v.is_number()) at.fail(fmt::format("'{}' holds something that is not a number", key));
    out.push_back(v.get<double>());
  }
  return out;
}

/// The texts of a list; empty if it is absent.
std::vector<std::string> texts_of(const json& j, const char* key, const Place& at) {
  std::vector<std::string> out;
  const json* list = find_member(j, key);
  if (list == nullptr) return out;
  if (!list->is_array()) at.fail(fmt::format("'{}' is not a list", key));
  for (const json& v : *list) {
    if (!v.is_string()) at.fail(fmt::format("'{}' holds something that is not text", key));
    out.push_back(v.get<std::string>());
  }
  return out;
}

std::vector<LoadedRun> runs_entry(const json& time, const Place& at) {
  const std::vector<double> us = numbers_of(time, "run_us", at),
                            samples = numbers_of(time, "run_samples", at),
                            cores = numbers_of(time, "run_cores_us", at),
                            memory = numbers_of(time, "run_memory_us", at),
                            handover = numbers_of(time, "run_handover_us", at);
  std::vector<LoadedRun> out(us.size());
  for (std::size_t i = 0; i < us.size(); ++i) {
    out[i].us = us[i];
    if (samples.size() == us.size()) out[i].samples = static_cast<std::size_t>(std::max(0.0, samples[i]));
    if (cores.size() == us.size()) out[i].cores_us = cores[i];
    if (memory.size() == us.size()) out[i].memory_us = memory[i];
    if (handover.size() == us.size()) out[i].handover_us = handover[i];
  }
  return out;
}

LoadedResult own_entry(const json& entry, const json& a, const Place& at) {
  if (!a.is_object()) at.fail("'attnbench' is not an object");
  LoadedResult r;
  r.name = text_of(entry, "name", at);
  r.id = text_of(a, "id", at);
  if (r.id.empty()) at.fail("'attnbench.id' is missing");
  r.kernel = text_of(a, "kernel", at);
  r.op = text_of(a, "op", at);
  r.sweep = text_of(a, "sweep", at);
  r.device = text_of(a, "device", at);
  r.repro = text_of(a, "repro", at);
  r.reason = text_of(a, "reason", at);
  r.bound = text_of(a, "bound", at);
  r.status = parse_status(text_of(a, "status", at), at);
  r.sol = number_of(a, "sol", at);
  r.tflops = number_of(a, "tflops", at);
  r.gbs = number_of(a, "gbs", at);
  if (const json* c = find_member(a, "check")) {
    r.check = text_of(*c, "method", at);
    r.failed_by = texts_of(*c, "failed_by", at);
    r.clues = texts_of(*c, "clues", at);
    if (const json* list = find_member(*c, "invariants"); list != nullptr && !list->empty())
      r.check += " and invariants";
  } else if (a.contains("check")) {
    r.check = "off";
  }
  if (const json* c = find_member(a, "clocks")) {
    r.sm_mhz = number_of(*c, "sm_mhz", at);
    r.throttled = flag_of(*c, "throttled", false, at);
  }
  if (const json* t = find_member(a, "time")) {
    r.median_us = number_of(*t, "median_us", at);
    r.lo_us = number_of(*t, "lo_us", at);
    r.hi_us = number_of(*t, "hi_us", at);
    r.cache = text_of(*t, "cache", at);
    if (r.cache == "cold" && r.device != "cpu" && !t->contains("code")) r.cache = "cold_data";  // schema 1, 2
    r.graph = flag_of(*t, "graph", false, at);
    r.runs = static_cast<int>(std::clamp(number_of(*t, "runs", at).value_or(1), 1.0, 1e6));
    r.disturbed = static_cast<int>(std::clamp(number_of(*t, "disturbed", at).value_or(0), 0.0, 1e9));
    r.cores_us = number_of(*t, "cores_us", at).value_or(0);
    r.memory_us = number_of(*t, "memory_us", at).value_or(0);
    r.handover_us = number_of(*t, "handover_us", at).value_or(0);
    r.per_run = runs_entry(*t, at);
    r.samples_us = numbers_of(*t, "samples_us", at);
  }
  return r;
}

/// Microseconds of one unit of Google Benchmark's time_unit.
double unit_us(const std::string& unit, const Place& at) {
  if (unit == "ns" || unit.empty()) return 1e-3;
  if (unit == "us") return 1.0;
  if (unit == "ms") return 1e3;
  if (unit == "s") return 1e6;
  at.fail(fmt::format("time_unit '{}' is not one of ns, us, ms, s", unit));
}

LoadedResult plain_entry(const json& entry, const Place& at) {
  LoadedResult r;
  r.name = r.id = text_of(entry, "name", at);
  if (r.name.empty()) at.fail("'name' is missing");
  if (flag_of(entry, "error_occurred", false, at)) {
    r.status = Status::kError;
    r.reason = text_of(entry, "error_message", at);
  } else if (flag_of(entry, "skipped", false, at)) {
    r.status = Status::kSkip;
    r.reason = text_of(entry, "skip_message", at);
  } else {
    const std::optional<double> time = number_of(entry, "real_time", at);
    if (!time) at.fail("'real_time' is missing");
    r.samples_us.push_back(*time * unit_us(text_of(entry, "time_unit", at), at));
  }
  return r;
}

/// Median and range of the repetitions.
void finish_plain(LoadedResult& r) {
  if (r.samples_us.empty()) return;
  std::vector<double> s = r.samples_us;
  std::sort(s.begin(), s.end());
  r.median_us = (s[(s.size() - 1) / 2] + s[s.size() / 2]) / 2;
  r.lo_us = s.front();
  r.hi_us = s.back();
}

/// Gathers entries. Repetitions of plain files are joined; a later entry of attnbench replaces an earlier
/// one.
class Gatherer {
 public:
  explicit Gatherer(ResultSet& set) : set_(set) {}

  void add(const json& entry, const Place& at) {
    if (!entry.is_object()) at.fail("not an object");
    if (const json* own = find_member(entry, "attnbench")) {
      LoadedResult r = own_entry(entry, *own, at);
      const auto whole = std::make_shared<json>(entry);
      if (set_.context_entry) fill_params(*whole, *set_.context_entry);
      r.entry = whole;
      return add_own(std::move(r));
    }
    if (text_of(entry, "run_type", at) == "aggregate") {
      ++aggregates_;
      return;
    }
    LoadedResult r = plain_entry(entry, at);
    const auto [it, fresh] = index_.try_emplace("plain\n" + r.name, set_.results.size());
    if (fresh) {
      set_.results.push_back(std::move(r));
    } else if (LoadedResult& first = set_.results[it->second]; r.status != Status::kPass) {
      first.status = r.status;
      first.reason = r.reason;
    } else {
      first.samples_us.insert(first.samples_us.end(), r.samples_us.begin(), r.samples_us.end());
    }
  }

  void finish() {
    if (set_.results.empty() && aggregates_ > 0) {
      Place{set_.path, ""}.fail(
          "holds only aggregates; write it without --benchmark_report_aggregates_only, as the samples are "
          "needed");
    }
    for (LoadedResult& r : set_.results) {
      if (!r.median_us) finish_plain(r);
    }
  }

 private:
  void add_own(LoadedResult r) {
    const auto [it, fresh] =
        index_.try_emplace(r.id + "\n" + r.kernel + "\n" + r.device, set_.results.size());
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

LoadedContext parse_context(const json& c, const Place& at) {
  LoadedContext out;
  out.date = text_of(c, "date", at);
  out.host = text_of(c, "host_name", at);
  const json* a = find_member(c, "attnbench");
  if (a == nullptr) return out;
  out.name = text_of(*a, "name", at);
  out.version = text_of(*a, "version", at);
  out.revision = text_of(*a, "revision", at);
  out.build_type = text_of(*a, "build_type", at);
  out.complete = flag_of(*a, "complete", true, at);
  if (const json* d = find_member(*a, "device")) {
    out.device_kind = text_of(*d, "kind", at);
    out.device_model = text_of(*d, "model", at);
    out.driver = text_of(*d, "driver", at);
    out.cuda = text_of(*d, "cuda", at);
    out.device_threads = static_cast<int>(number_of(*d, "threads", at).value_or(0));
  }
  return out;
}

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
    gatherer.add(entry, at);
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
    set.context = parse_context(*context, Place{set.path, "context"});
    set.context_entry = std::make_shared<const json>(*context);
  }
  Gatherer gatherer(set);
  for (std::size_t i = 0; i < benchmarks->size(); ++i) {
    gatherer.add((*benchmarks)[i], Place{set.path, fmt::format("benchmarks[{}]", i)});
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
  const double schema = number_of(*own, "schema", at).value_or(1);
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
