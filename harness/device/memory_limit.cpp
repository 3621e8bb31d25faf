#include "harness/device/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

namespace attnbench {
namespace {

std::optional<int64_t> number_in(std::istream&& text) {
  int64_t n = 0;
  return text >> n ? std::optional(n) : std::nullopt;  // "max", "unlimited"
}

/// The number behind `key` at the begin of a line of a file such as /proc/meminfo, in the unit of the file.
std::optional<int64_t> number_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return number_in(std::istringstream(line.substr(key.size())));
  }
  return std::nullopt;
}

void tighten(MemoryLimit& limit, int64_t bytes, int64_t used, const std::string& by) {
  limit.bytes = std::min(limit.bytes, bytes);
  const int64_t free = std::max<int64_t>(0, bytes - std::min(bytes, used));
  if (free >= limit.free) return;
  limit.free = free;
  limit.binds = by;
}

/// Files of a memory controller.
struct Files {
  std::vector<const char*> limits;
  const char *used, *droppable;  ///< a file; the key in memory.stat of pages that the kernel can drop
};
const Files kVersion1{{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file "};
const Files kVersion2{{"memory.max", "memory.high"}, "memory.current", "inactive_file "};

void tighten_by_group(MemoryLimit& limit, const std::string& root, const std::string& group,
                      const Files& files) {
  const std::string dir = root + group + "/";
  for (const char* name : files.limits) {
    const auto bytes = number_in(std::ifstream(dir + name));
    if (!bytes) continue;
    const int64_t used = number_in(std::ifstream(dir + files.used)).value_or(0);
    tighten(limit, *bytes, used - number_of(dir + "memory.stat", files.droppable).value_or(0),
            "cgroup " + group);
  }
}

/// The process's cgroups by controller, "" for version 2: lines such as "4:memory:/user.slice" and "0::/job".
std::map<std::string, std::string> groups_of_process(const std::string& root) {
  std::map<std::string, std::string> groups;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    std::istringstream parts(line);
    std::string id, controllers, path, controller;
    if (!std::getline(parts, id, ':') || !std::getline(parts, controllers, ':') || !std::getline(parts, path))
      continue;
    if (controllers.empty()) groups[""] = path;
    std::istringstream names(controllers);
    while (std::getline(names, controller, ',')) groups[controller] = path;
  }
  return groups;
}

/// A path of mountinfo, where blanks and backslashes are written as octal numbers: "\040".
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool octal = text[i] == '\\' && i + 3 < text.size();
    out += octal ? static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8)) : text[i];
    if (octal) i += 3;
  }
  return out;
}

/// From the process's group up to the root of what is mounted. A container mounts a part of the tree.
void tighten_by_groups(MemoryLimit& limit, const std::string& root) {
  const auto groups = groups_of_process(root);
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // "31 23 0:28 ROOT PLACE rw,relatime shared:1 - TYPE SOURCE OPTIONS"
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skipped, top, place, type, options;
    before >> skipped >> skipped >> skipped >> top >> place;
    after >> type >> skipped >> options;
    const bool version1 = type == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos;
    if (!version1 && type != "cgroup2") continue;
    const auto group = groups.find(version1 ? "memory" : "");
    if (group == groups.end()) continue;
    top = unescaped(top);
    place = unescaped(place);
    if (top == "/") top.clear();
    std::string below = group->second;
    const bool seen = (below + "/").starts_with(top + "/") && below.find("/..") == std::string::npos;
    below = seen ? below.substr(top.size()) : "";
    while (below.ends_with('/')) below.pop_back();
    for (;; below.resize(below.rfind('/'))) {
      tighten_by_group(limit, root, place + below, version1 ? kVersion1 : kVersion2);
      if (below.empty()) break;
    }
  }
}

}  // namespace

MemoryLimit memory_limit(const std::string& root) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const std::string info = root + "/proc/meminfo";
  const auto kib = number_of(info, "MemTotal:");
  const int64_t all = kib ? *kib * 1024 : static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * page;
  const auto available = number_of(info, "MemAvailable:");
  MemoryLimit limit{all, available ? std::min(all, *available * 1024) : all / 2, "the machine"};

  int64_t pages[6] = {};
  std::ifstream sizes(root + "/proc/self/statm");
  for (int64_t& n : pages) sizes >> n;
  const std::string limits = root + "/proc/self/limits";
  if (const auto n = number_of(limits, "Max address space")) tighten(limit, *n, pages[0] * page, "ulimit -v");
  if (const auto n = number_of(limits, "Max data size")) tighten(limit, *n, pages[5] * page, "ulimit -d");
  tighten_by_groups(limit, root);
  return limit;
}

}  // namespace attnbench
