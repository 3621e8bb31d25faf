#include "harness/results/host.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace attnbench {
namespace {

constexpr const char* kCpu0 = "/sys/devices/system/cpu/cpu0/";

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// The value of "key : value" in /proc/cpuinfo, for the first core.
std::string cpuinfo(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// Number of threads in a list such as "0-3,8,10-11".
int count_cpu_list(const std::string& list) {
  std::istringstream in(list);
  int count = 0;
  for (std::string part; std::getline(in, part, ',');) {
    const auto dash = part.find('-');
    const int first = std::atoi(part.c_str());
    const int last = dash == std::string::npos ? first : std::atoi(part.c_str() + dash + 1);
    if (last >= first) count += last - first + 1;
  }
  return count;
}

/// "48K" to 49152.
int64_t parse_size(const std::string& text) {
  char* end = nullptr;
  const int64_t n = std::strtoll(text.c_str(), &end, 10);
  return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : n;
}

}  // namespace

std::string iso_date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S%z", &local);
  std::string date = text.data();
  if (date.size() == 24) date.insert(22, ":");  // +0100 -> +01:00
  return date;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string cpu_model_name() {
  if (std::string model = cpuinfo("model name"); !model.empty()) return model;
  utsname u{};
  return uname(&u) == 0 ? u.machine : "";
}

double cpu_max_mhz() {
  const std::string khz = first_line(std::string(kCpu0) + "cpufreq/cpuinfo_max_freq");
  if (!khz.empty()) return std::atof(khz.c_str()) / 1000.0;
  return std::atof(cpuinfo("cpu MHz").c_str());
}

bool cpu_scaling_enabled() {
  const std::string governor = first_line(std::string(kCpu0) + "cpufreq/scaling_governor");
  return !governor.empty() && governor != "performance";
}

std::vector<HostCache> host_caches() {
  std::vector<HostCache> caches;
  for (int i = 0;; ++i) {
    const std::string dir = std::string(kCpu0) + "cache/index" + std::to_string(i) + "/";
    HostCache c;
    c.type = first_line(dir + "type");
    if (c.type.empty()) return caches;
    c.level = std::atoi(first_line(dir + "level").c_str());
    c.size = parse_size(first_line(dir + "size"));
    c.num_sharing = count_cpu_list(first_line(dir + "shared_cpu_list"));
    caches.push_back(c);
  }
}

std::vector<double> load_averages() {
  std::array<double, 3> load{};
  const int n = getloadavg(load.data(), static_cast<int>(load.size()));
  return n > 0 ? std::vector<double>(load.begin(), load.begin() + n) : std::vector<double>{};
}

}  // namespace attnbench
