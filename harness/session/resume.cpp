#include "harness/session/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/error.h"
#include "harness/results/json.h"
#include "harness/results/load.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
using Key = std::pair<std::string, std::string>;  ///< id and kernel

Key key_of(const WorkItem& w) { return {w.item->id, w.kernel ? w.kernel->name : ""}; }

/// A text field of an entry; empty if it is absent.
std::string text_at(const Json& entry, const char* key) {
  if (!entry.is_object()) return "";
  const auto own = entry.find("attnbench");
  if (own == entry.end() || !own->is_object()) return "";
  const auto it = own->find(key);
  return it != own->end() && it->is_string() ? it->get<std::string>() : "";
}

std::string shown(const Json& v) {
  if (!v.is_string()) return one_line(dump_json(v));
  const std::string text = one_line(v.get<std::string>());
  return text.empty() ? "nothing" : "'" + text + "'";
}

}  // namespace

Finished read_finished(const std::filesystem::path& journal, const std::vector<WorkItem>& work) {
  std::map<Key, const WorkItem*> items;
  for (const WorkItem& w : work) items[key_of(w)] = &w;
  std::map<int64_t, Record> records;
  Finished out;
  const std::string text = read_results_text(journal);
  int64_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const bool last = end + 1 >= text.size();
    const Json entry = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                   text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    const auto fail = [&](const std::string& what) {
      throw ResultsError(fmt::format("{}:{}: error: {}", journal.string(), line_number, what));
    };
    ++line_number;
    if (entry.is_discarded()) {
      if (last) break;
      fail("not JSON, and not the last line either");
    }
    const auto found = items.find({text_at(entry, "id"), text_at(entry, "kernel")});
    if (found == items.end()) {
      fail(fmt::format("holds {}/{}, which this run does not plan", one_line(text_at(entry, "id")),
                       one_line(text_at(entry, "kernel"))));
    }
    try {
      Record r = record_from_json(entry, *found->second->item);
      r.index = found->second->index;
      records[r.index] = std::move(r);
    } catch (const Error& e) {
      fail(e.what());
    }
    out.ends_a_line = end < text.size();
    begin = std::min(end + 1, text.size());
    out.whole_bytes = static_cast<int64_t>(begin);
  }
  for (auto& [index, record] : records) out.records.push_back(std::move(record));
  return out;
}

std::vector<WorkItem> unfinished(const std::vector<WorkItem>& work, const std::vector<Record>& records) {
  std::set<Key> done;
  for (const Record& r : records) done.insert({r.item.id, r.kernel});
  std::vector<WorkItem> left;
  for (const WorkItem& w : work) {
    if (!done.count(key_of(w))) left.push_back(w);
  }
  return left;
}

namespace {

/// "a.so, b.so"; "none".
std::string plugin_paths(const std::vector<PluginInfo>& plugins) {
  std::string paths;
  for (const PluginInfo& p : plugins) paths += (paths.empty() ? "" : ", ") + one_line(p.path);
  return paths.empty() ? "none" : paths;
}

/// How the plug-ins differ. Their paths do not matter, but the builds that ran do.
std::string plugin_difference(const std::vector<PluginInfo>& then, const std::vector<PluginInfo>& now) {
  if (std::equal(then.begin(), then.end(), now.begin(), now.end(),
                 [](const PluginInfo& a, const PluginInfo& b) { return a.digest == b.digest; }))
    return "";
  const std::string paths = plugin_paths(now);
  if (then.size() == now.size() && plugin_paths(then) == paths)
    return fmt::format("plug-ins: {} changed since (the file's digest is another)", paths);
  return fmt::format("plug-ins: {} there, {} here", plugin_paths(then), paths);
}

/// How the cases differ, as far as the finished ones tell.
std::string case_difference(const PlanInfo& was, const PlanInfo& is, const std::vector<Record>& finished,
                            const std::vector<WorkItem>& work) {
  if (was.size == is.size && was.digest == is.digest) return "";
  std::map<Key, const WorkItem*> items;
  for (const WorkItem& w : work) items[key_of(w)] = &w;
  std::string seeds, other;
  int64_t others = 0;
  for (const Record& r : finished) {
    const auto item = items.find({r.item.id, r.kernel});
    if (item == items.end()) {
      if (others++ == 0) other = one_line(r.item.id + "/" + r.kernel);
      continue;
    }
    const uint64_t own = item->second->item->seed;
    if (seeds.empty() && r.item.seed != own)
      seeds = fmt::format(", seed {} there and {} here", r.item.seed, own);
  }
  std::string text =
      was.size != is.size
          ? fmt::format("cases: {} run{} planned there, {} here", was.size, was.size == 1 ? "" : "s", is.size)
          : fmt::format("cases: {} runs planned here as there, but others", is.size);
  text += seeds;
  if (others > 0)
    text +=
        fmt::format(", and {} of its {} finished runs not here, such as {}", others, finished.size(), other);
  return text;
}

}  // namespace

std::vector<std::string> differences(const ResultSet& there, const RunContext& now,
                                     const std::vector<WorkItem>& work) {
  const RunContext& then = there.context;
  if (then.version.empty()) throw ResultsError(there.path + ": error: not the results of a run");
  std::vector<std::string> out;
  const auto compare = [&](const std::string& name, const Json& a, const Json& b) {
    if (a != b) out.push_back(fmt::format("{}: {} there, {} here", name, shown(a), shown(b)));
  };
  compare("name", then.name, now.name);
  compare("version", then.version, now.version);
  compare("revision", then.revision, now.revision);
  compare("build_type", then.build_type, now.build_type);
  compare("device kind", device_kind_name(then.device.kind), device_kind_name(now.device.kind));
  compare("device model", then.device.model, now.device.model);
  compare("device threads", then.device.threads, now.device.threads);
  const auto add = [&](std::string text) {
    if (!text.empty()) out.push_back(std::move(text));
  };
  add(plugin_difference(then.plugins, now.plugins));
  const std::map<std::string, std::string> options(then.plan.options.begin(), then.plan.options.end());
  for (const auto& [key, value] : now.plan.options) {
    const auto was = options.find(key);
    compare(key, was == options.end() ? "" : was->second, value);
  }
  compare("shard", then.plan.shard, now.plan.shard);
  compare("shards", then.plan.shards, now.plan.shards);
  add(case_difference(then.plan, now.plan, there.results, work));
  return out;
}

std::string began_as(const RunContext& context) {
  std::string line;
  for (const std::string& word : context.command_line) line += (line.empty() ? "" : " ") + shell_word(word);
  return one_line(line);
}

}  // namespace attnbench
