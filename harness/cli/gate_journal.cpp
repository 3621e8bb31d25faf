#include "harness/cli/gate_journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/cli/earlier_run.h"
#include "harness/cli/usage_error.h"
#include "harness/results/files.h"
#include "harness/results/json.h"
#include "harness/results/load.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kName = "gate.jsonl";

fs::path file_of(const fs::path& dir, bool resume) {
  std::error_code ec;
  if (resume && !fs::exists(dir / kName, ec)) {
    throw UsageError(
        fmt::format("--resume {}: holds no {}, so no gate ran there; give the folder of an "
                    "interrupted gate, or a new --out",
                    dir.string(), kName));
  }
  return dir / kName;
}

std::string line_of(const Json& entry) { return dump_json(entry) + "\n"; }

/// In words, by which settings two gates differ.
std::vector<std::string> differences(const GateSettings& then, const GateSettings& now) {
  std::set<std::string> names;
  for (const GateSettings* settings : {&then, &now}) {
    for (const auto& [name, value] : *settings) names.insert(name);
  }
  const auto shown = [](const GateSettings& settings, const std::string& name) {
    const auto it = settings.find(name);
    return it == settings.end() || it->second.empty() ? "nothing" : "'" + one_line(it->second) + "'";
  };
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const std::string was = shown(then, name), is = shown(now, name);
    if (was != is) out.push_back(fmt::format("{}: {} there, {} here", one_line(name), was, is));
  }
  return out;
}

}  // namespace

GateJournal::GateJournal(fs::path dir, const GateSettings& settings, bool resume)
    : dir_(std::move(dir)), file_(file_of(dir_, resume)) {
  if (resume) {
    read(settings);
  } else {
    std::error_code ec;
    if (fs::file_size(dir_ / kName, ec) > 0 && !ec) {
      fs::copy_file(dir_ / kName, dir_ / kEarlierJournal, fs::copy_options::overwrite_existing, ec);
      if (ec)
        throw FileError(
            fmt::format("{}: error: cannot write: {}", (dir_ / kEarlierJournal).string(), ec.message()));
    }
    file_.cut(0);
    file_.append(line_of({{"settings", settings}}));
  }
}

void GateJournal::read(const GateSettings& settings) {
  const fs::path path = dir_ / kName;
  const std::string text = read_results_text(path);
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {  // cut short by a kill
      file_.cut(static_cast<int64_t>(begin));
      break;
    }
    ++line_number;
    try {
      const Json entry = Json::parse(text.substr(begin, end - begin));
      if (line_number == 1) {
        refuse_other_run(dir_, differences(entry.at("settings").get<GateSettings>(), settings));
      } else {
        BegunRun& run = runs_[entry.at("run").get<int>()];
        if (entry.contains("side")) {
          run.side = entry.at("side").get<std::string>();
          run.more = entry.at("more").get<std::vector<std::string>>();
        } else {
          run.seconds += entry.at("seconds").get<double>();
          if (!entry.at("exit_code").is_null()) run.exit_code = entry.at("exit_code").get<int>();
        }
      }
    } catch (const nlohmann::json::exception& e) {
      throw ResultsError(fmt::format("{}:{}: error: not the journal of a gate: {}", path.string(),
                                     line_number, one_line(e.what())));
    }
    begin = end + 1;
  }
  if (line_number == 0) file_.append(line_of({{"settings", settings}}));
}

const BegunRun* GateJournal::run(int number) const {
  const auto it = runs_.find(number);
  return it == runs_.end() ? nullptr : &it->second;
}

int GateJournal::ended_from(int number) const {
  return static_cast<int>(std::count_if(runs_.lower_bound(number), runs_.end(),
                                        [](const auto& r) { return r.second.exit_code.has_value(); }));
}

void GateJournal::begin(int number, const std::string& side, const std::vector<std::string>& more) {
  runs_[number] = {side, more, 0, std::nullopt};
  file_.append(line_of({{"run", number}, {"side", side}, {"more", more}}));
}

void GateJournal::spent(int number, double seconds, std::optional<int> exit_code) {
  BegunRun& run = runs_[number];
  run.seconds += seconds;
  run.exit_code = exit_code;
  file_.append(line_of(
      {{"run", number}, {"seconds", seconds}, {"exit_code", exit_code ? Json(*exit_code) : Json(nullptr)}}));
}

}  // namespace attnbench::cli
