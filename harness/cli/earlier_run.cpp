#include "harness/cli/earlier_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <regex>

#include "harness/cli/common.h"
#include "harness/cli/usage_error.h"
#include "harness/record/files.h"
#include "harness/record/host.h"
#include "harness/record/json_read.h"
#include "harness/record/load.h"
#include "harness/record/text.h"

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;

/// DIR/stem.end, or the first of DIR/stem.2.end, DIR/stem.3.end, ... that does not exist.
fs::path free_name(const fs::path& dir, const char* stem, const char* end) {
  fs::path path = dir / fmt::format("{}.{}", stem, end);
  for (int i = 2; fs::exists(fs::symlink_status(path)); ++i)
    path = dir / fmt::format("{}.{}.{}", stem, i, end);
  return path;
}

void move_to(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  fs::rename(from, to, ec);
  if (ec) throw FileError(fmt::format("{}: error: cannot write: {}", to.string(), ec.message()));
}

/// The name of the sweep file that the run in `dir` ran; empty if its results cannot be read.
std::string name_of_run(const fs::path& dir) {
  try {
    return load_results(dir.string()).context.name;
  } catch (const ResultsError&) {
    return "";
  }
}

}  // namespace

std::string folder_word(const std::string& name) {
  std::string safe;
  for (const char c : name)
    safe += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '-';
  return safe;
}

fs::path runs_folder() { return fs::path("results") / "runs"; }

fs::path new_run_folder(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return make_new_folder(runs_folder() / fmt::format("{:%Y%m%d-%H%M%S}-{}", local, folder_word(name)));
}

fs::path newest_run(const std::string& name) {
  // DATE-NAME or DATE-NAME-2, ..., of runs that began in the same second.
  const std::regex pattern(fmt::format("([0-9]{{8}}-[0-9]{{6}})-{}(?:-([0-9]{{1,6}}))?", folder_word(name)));
  std::pair<std::string, int> newest;  // dates sort as text
  fs::path found;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(runs_folder(), ec)) {
    const std::string folder = entry.path().filename().string();
    std::smatch match;
    if (!std::regex_match(folder, match, pattern) || !fs::exists(entry.path() / "results.json", ec)) continue;
    if (match[2].matched && name_of_run(entry.path()) != name) continue;  // a sweep named NAME-2
    const std::pair at(match[1].str(), match[2].matched ? std::stoi(match[2].str()) : 1);
    if (at < newest) continue;
    newest = at;
    found = entry.path();
  }
  return found;
}

void keep_earlier_run(const fs::path& dir) {
  const fs::path results = dir / "results.json", journal = dir / "journal.jsonl";
  std::error_code ec;
  std::string held = "a file that attnbench cannot read";
  if (fs::is_regular_file(results, ec)) {
    bool keep = true;
    try {
      const ResultSet earlier = load_results(results.string());
      keep = earlier.context.complete && !earlier.results.empty();
      held = fmt::format("a finished run of {}", counted(std::ssize(earlier.results), "result"));
    } catch (const ResultsError&) {  // not a run of attnbench, or cut short: kept in any case
    }
    if (keep) {
      const fs::path kept = free_name(dir, "results.previous", "json");
      move_to(results, kept);
      std::cerr << fmt::format("note: {} held {}; it is kept as {}\n", results.string(), held,
                               kept.filename().string());
      if (held.starts_with("a finished")) return;  // its journal holds the same
    }
  }
  if (fs::file_size(journal, ec) == 0 || ec) return;
  // A copy, because the journal is already open and locked.
  const fs::path kept = free_name(dir, "journal.interrupted", "jsonl");
  fs::copy_file(journal, kept, ec);
  if (ec) throw FileError(fmt::format("{}: error: cannot write: {}", kept.string(), ec.message()));
  std::cerr << fmt::format(
      "note: {} held an interrupted run, which --resume would have gone on with; its records are kept in "
      "{}\n",
      dir.string(), kept.filename().string());
}

void keep_earlier_comparison(const fs::path& dir) {
  std::vector<std::string> kept;
  for (const auto& [format, name] : kGateReports) {
    std::error_code ec;
    if (!fs::is_regular_file(dir / name, ec)) continue;
    const std::string file = name;
    const std::size_t stem = file.find('.');
    const fs::path to = free_name(dir, (file.substr(0, stem) + ".previous").c_str(), file.c_str() + stem + 1);
    move_to(dir / name, to);
    kept.push_back(to.filename().string());
  }
  if (kept.empty()) return;
  std::cerr << fmt::format("note: {} held an earlier gate; its reports are kept as {}\n", dir.string(),
                           fmt::join(kept, ", "));
}

void check_resume(const std::string& resume, const std::string& out, const CaseOptions& cases) {
  if (resume.empty()) return;
  if (!out.empty()) throw UsageError("--resume DIR writes to DIR; drop --out");
  if (!fs::is_directory(resume)) {
    throw UsageError(fmt::format("--resume {}: there is no such folder", resume));
  }
  if (cases.configs.empty() && cases.chosen.empty()) {
    throw UsageError(fmt::format("--resume {}: give the run's CONFIG and options again", resume));
  }
}

void refuse_other_run(const fs::path& dir, const std::vector<std::string>& different,
                      const std::string& began_as) {
  if (different.empty()) return;
  throw UsageError(fmt::format(
      "--resume {}: that was another run ({}); give the same configuration, options and program, or a new --out{}",
      dir.string(), fmt::join(different, "; "),
      began_as.empty()
          ? ""
          : fmt::format(". It began as: {} (if its sweep file has changed since, undo that)", began_as)));
}

bool in_gate() { return std::getenv(kGateFolder) != nullptr; }

std::string folder_to_resume(const fs::path& dir) {
  const char* gate = std::getenv(kGateFolder);
  return gate != nullptr ? gate : dir.string();
}

std::optional<Ceilings> EarlierCeilings::still_known() const {
  return ceilings.read_gbs && host == host_name() ? std::optional(ceilings) : std::nullopt;
}

std::string EarlierCeilings::text() const {
  if (!ceilings.read_gbs) return "";
  if (still_known()) return "the ceilings (for %SOL and bound) are those that the first part measured";
  return fmt::format(
      "the ceilings (for %SOL and bound) are measured anew: the first part ran on host '{}', and its records "
      "keep their shares",
      one_line(host));
}

std::optional<EarlierCeilings> earlier_ceilings(const fs::path& dir) {
  const fs::path results = dir / "results.json";
  std::error_code ec;
  if (dir.empty() || !fs::exists(results, ec)) return std::nullopt;
  try {
    const auto context = nlohmann::ordered_json::parse(read_results_text(results)).at("context");
    return EarlierCeilings{ceilings_from_json(context.at("attnbench").at("ceilings")),
                           context.at("host_name").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace attnbench::cli
