#include "harness/results/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "harness/results/json.h"
#include "harness/results/load.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kNamedAtMost = 5;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw ResultsError(path + ": error: " + what);
}

const Json& required_member(const std::string& path, const Json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  if (!j.is_object() || it == j.end()) {
    fail(path, fmt::format("'{}' is missing: not the results of an attnbench run", key));
  }
  return *it;
}

template <class T>
T value(const std::string& path, const Json& j, const char* key) {
  try {
    return required_member(path, j, key).get<T>();
  } catch (const Json::exception&) {
    fail(path, fmt::format("'{}' is of a wrong type", key));
  }
}

/// One file: its context, and its entries by position in the plan.
struct Part {
  std::string path;
  Json context;  ///< as Google Benchmark's
  Json own;      ///< context.attnbench
  std::string digest;
  int64_t size = 0;
  std::vector<std::pair<int64_t, Json>> entries;
};

void take_entry(Part& part, Json entry) {
  fill_params(entry, part.context);
  const Json& own = required_member(part.path, entry, "attnbench");
  const auto index = value<int64_t>(part.path, own, "index");
  for (const char* key : {"id", "kernel", "status"}) value<std::string>(part.path, own, key);
  if (index < 0 || index >= part.size) {
    fail(part.path, fmt::format("an entry is number {} of a plan of {} runs", index, part.size));
  }
  part.entries.emplace_back(index, std::move(entry));
}

/// Takes what a killed run had finished from its journal; its results.json lacks it.
void take_journal(Part& part, const fs::path& journal) {
  part.path = journal.string();
  const std::string text = read_results_text(journal);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const Json entry = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                   text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    begin = end + 1;
    if (entry.is_discarded() && begin >= text.size()) break;  // cut short
    if (entry.is_discarded()) fail(part.path, "holds a line that is not JSON");
    take_entry(part, entry);
  }
}

Part read_part(const std::string& given) {
  std::error_code ec;
  const bool folder = fs::is_directory(given, ec);
  Part part;
  part.path = folder ? (fs::path(given) / "results.json").string() : given;
  const std::string text = read_results_text(part.path);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) fail(part.path, "the file is empty");
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) fail(part.path, begins_as_json(text) ? "not JSON" : kNoResultsFile);
  part.context = required_member(part.path, root, "context");
  check_schema(part.context, part.path);
  part.own = required_member(part.path, part.context, "attnbench");
  const Json& plan = required_member(part.path, part.own, "plan");
  part.digest = value<std::string>(part.path, plan, "digest");
  part.size = value<int64_t>(part.path, plan, "size");
  value<int64_t>(part.path, plan, "shard");
  value<int64_t>(part.path, plan, "shards");
  const Json& entries = required_member(part.path, root, "benchmarks");
  if (!entries.is_array()) fail(part.path, "'benchmarks' is not a list");
  const fs::path journal = fs::path(given) / "journal.jsonl";
  if (folder && entries.empty() && fs::exists(journal, ec)) {
    take_journal(part, journal);
  } else {
    for (const Json& entry : entries) take_entry(part, entry);
  }
  return part;
}

/// Facts that two files must have in common.
std::vector<std::pair<std::string, std::string>> identity(const Part& p) {
  const auto text = [&](const Json& j, const char* key) {
    const Json& v = required_member(p.path, j, key);
    // As plain JSON, which sorts its keys: their order in the file does not matter.
    return one_line(v.is_string() ? v.get<std::string>() : dump_json(nlohmann::json(v)));
  };
  const Json& device = required_member(p.path, p.own, "device");
  const Json& plan = required_member(p.path, p.own, "plan");
  std::vector<std::string> plugins;  // their digests; paths do not matter
  if (p.own.contains("plugins")) {
    for (const Json& plugin : p.own.at("plugins")) plugins.push_back(text(plugin, "digest"));
  }
  return {{"plan (digest of cases, kernels and seeds)", one_line(p.digest)},
          {"number of planned runs", std::to_string(p.size)},
          {"number of shards", text(plan, "shards")},
          {"options", text(plan, "options")},
          {"version", text(p.own, "version")},
          {"revision", text(p.own, "revision")},
          {"build type", text(p.own, "build_type")},
          {"list of plug-ins (digests)", fmt::format("[{}]", fmt::join(plugins, ", "))},
          {"device kind", text(device, "kind")},
          {"device model", text(device, "model")},
          {"device threads", text(device, "threads")}};
}

void refuse_mixture(const Part& first, const Part& other) {
  const auto a = identity(first), b = identity(other);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].second == b[i].second) continue;
    fail(other.path, fmt::format("its {} is {}, that of {} is {}; --allow-mixed merges them all the same",
                                 a[i].first, b[i].second, first.path, a[i].second));
  }
}

/// The shards of a plan that are in no file.
std::string missing_shards(const std::vector<Part>& parts, const std::string& digest) {
  std::set<int64_t> have;
  int64_t shards = 0;
  for (const Part& p : parts) {
    if (p.digest != digest) continue;
    const Json& plan = p.own.at("plan");
    have.insert(plan.at("shard").get<int64_t>());
    shards = plan.at("shards").get<int64_t>();
  }
  std::vector<std::string> named;
  int64_t missing = 0;
  for (int64_t s = 1; s <= shards && missing <= static_cast<int64_t>(kNamedAtMost); ++s) {
    if (have.count(s)) continue;
    if (++missing <= static_cast<int64_t>(kNamedAtMost)) named.push_back(fmt::format("{}/{}", s, shards));
  }
  if (named.empty()) return "";
  return fmt::format("; no file is of shard {}{}", fmt::join(named, ", "),
                     missing > static_cast<int64_t>(kNamedAtMost) ? " and others" : "");
}

}  // namespace

nlohmann::ordered_json merge_results(const std::vector<std::string>& paths, const MergeAllowed& allowed) {
  std::vector<Part> parts;
  for (const std::string& path : paths) parts.push_back(read_part(path));
  if (parts.empty()) throw ResultsError("nothing to merge");
  // Plans in the order of their first file. There is only one unless they may be mixed.
  std::vector<std::string> digests;
  std::map<std::pair<std::size_t, int64_t>, std::pair<const Json*, const Part*>> runs;
  int64_t planned = 0;
  for (const Part& p : parts) {
    if (!allowed.mixed) refuse_mixture(parts.front(), p);
    auto plan = static_cast<std::size_t>(std::ranges::find(digests, p.digest) - digests.begin());
    if (plan == digests.size()) {
      digests.push_back(p.digest);
      planned += p.size;
    }
    for (const auto& [index, entry] : p.entries) {
      auto& slot = runs[{plan, index}];
      if (slot.second != nullptr && slot.second != &p && !allowed.overlaps) {
        const Json& own = entry.at("attnbench");
        fail(p.path, fmt::format("holds {}/{}, which {} holds too; --allow-overlaps takes the later file's",
                                 one_line(own.at("id").get<std::string>()),
                                 one_line(own.at("kernel").get<std::string>()), slot.second->path));
      }
      slot = {&entry, &p};
    }
  }
  const auto missing = planned - static_cast<int64_t>(runs.size());
  if (missing > 0 && !allowed.gaps) {
    std::string why;
    for (const std::string& digest : digests) why += missing_shards(parts, digest);
    for (const Part& p : parts) {
      if (!p.own.value("complete", true)) why += fmt::format("; {} is of a run that did not finish", p.path);
    }
    throw ResultsError(fmt::format(
        "error: {} of {} planned runs are in none of the files{}; --allow-gaps merges what is there", missing,
        planned, why));
  }
  Json out;
  out["context"] = parts.front().context;
  Json& own = out["context"]["attnbench"];
  own["complete"] = missing <= 0;
  own["planned"] = planned;
  own["plan"]["shard"] = own["plan"]["shards"] = 1;
  own["merged"] = Json::array();
  for (const Part& p : parts) {
    own["merged"].push_back({{"shard", p.own.at("plan").at("shard")},
                             {"shards", p.own.at("plan").at("shards")},
                             {"host", p.context.value("host_name", "")},
                             {"date", p.context.value("date", "")},
                             {"runs", p.entries.size()}});
  }
  out["benchmarks"] = Json::array();
  std::map<std::string, std::pair<int64_t, int64_t>> families;
  for (const auto& [place, run] : runs) {
    Json entry = *run.first;
    const auto id = entry.at("attnbench").at("id").get<std::string>();
    const auto next = static_cast<int64_t>(families.size());
    auto& [family, instances] = families.try_emplace(id, next, 0).first->second;
    entry["family_index"] = family;
    entry["per_family_instance_index"] = instances++;
    out["benchmarks"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace attnbench
