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

/// A member, or null.
Json part(const Json& j, const char* key) { return j.is_object() && j.contains(key) ? j.at(key) : Json(); }

/// "a.so, b.so"; "none".
std::string plugin_paths(const Json& plugins) {
  std::string paths;
  for (const Json& plugin : plugins) {
    const Json path = part(plugin, "path");
    paths += (paths.empty() ? "" : ", ") + (path.is_string() ? one_line(path.get<std::string>()) : "?");
  }
  return paths.empty() ? "none" : paths;
}

/// How the plug-ins differ. Their paths do not matter, but the builds that ran do.
std::string plugin_difference(const Json& then, const Json& now) {
  const auto builds = [](const Json& plugins) {
    Json digests = Json::array();
    for (const Json& plugin : plugins) digests.push_back(part(plugin, "digest"));
    return digests;
  };
  if (builds(then) == builds(now)) return "";
  const std::string paths = plugin_paths(now);
  if (then.size() == now.size() && plugin_paths(then) == paths)
    return fmt::format("plug-ins: {} changed since (the file's digest is another)", paths);
  return fmt::format("plug-ins: {} there, {} here", plugin_paths(then), paths);
}

/// How the cases differ, as far as the finished ones tell.
std::string case_difference(const Json& was, const Json& is, const Json& finished,
                            const std::vector<WorkItem>& work) {
  if (part(was, "size") == is.at("size") && part(was, "digest") == is.at("digest")) return "";
  std::map<Key, const WorkItem*> items;
  for (const WorkItem& w : work) items[key_of(w)] = &w;
  std::string seeds, other;
  int64_t others = 0;
  for (const Json& entry : finished) {
    const Key key{text_at(entry, "id"), text_at(entry, "kernel")};
    const auto item = items.find(key);
    if (item == items.end()) {
      if (others++ == 0) other = one_line(key.first + "/" + key.second);
      continue;
    }
    const Json seed = part(part(entry, "attnbench"), "seed");
    const uint64_t own = item->second->item->seed;
    if (seeds.empty() && seed != own)
      seeds = fmt::format(", seed {} there and {} here", dump_json(seed), own);
  }
  const Json there = part(was, "size");
  const Json& here = is.at("size");
  std::string text = there != here
                         ? fmt::format("cases: {} run{} planned there, {} here", dump_json(there),
                                       there == 1 ? "" : "s", dump_json(here))
                         : fmt::format("cases: {} runs planned here as there, but others", dump_json(here));
  text += seeds;
  if (others > 0)
    text +=
        fmt::format(", and {} of its {} finished runs not here, such as {}", others, finished.size(), other);
  return text;
}

}  // namespace

std::vector<std::string> differences(const std::filesystem::path& results, const RunContext& context,
                                     const std::vector<WorkItem>& work) {
  const Json root = Json::parse(read_results_text(results), nullptr, /*allow_exceptions=*/false);
  const Json then = part(part(root, "context"), "attnbench");
  if (!then.is_object()) throw ResultsError(results.string() + ": error: not the results of a run");
  const Json now = context_to_json(context).at("attnbench");
  std::vector<std::string> out;
  const auto compare = [&](const std::string& name, const Json& a, const Json& b) {
    if (a != b) out.push_back(fmt::format("{}: {} there, {} here", name, shown(a), shown(b)));
  };
  for (const char* key : {"name", "version", "revision", "build_type"})
    compare(key, part(then, key), part(now, key));
  for (const char* key : {"kind", "model", "threads"})
    compare(std::string("device ") + key, part(part(then, "device"), key), part(part(now, "device"), key));
  const auto add = [&](std::string text) {
    if (!text.empty()) out.push_back(std::move(text));
  };
  add(plugin_difference(part(then, "plugins"), part(now, "plugins")));
  const Json was = part(then, "plan"), is = part(now, "plan");
  for (const auto& [key, value] : is.at("options").items())
    compare(key, part(part(was, "options"), key.c_str()), value);
  for (const char* key : {"shard", "shards"}) compare(key, part(was, key), part(is, key));
  add(case_difference(was, is, part(root, "benchmarks"), work));
  return out;
}

std::string began_as(const std::filesystem::path& results) {
  const Json root = Json::parse(read_results_text(results), nullptr, /*allow_exceptions=*/false);
  std::string line;
  for (const Json& word : part(part(part(root, "context"), "attnbench"), "command_line")) {
    if (word.is_string()) line += (line.empty() ? "" : " ") + shell_word(word.get<std::string>());
  }
  return one_line(line);
}

}  // namespace attnbench
