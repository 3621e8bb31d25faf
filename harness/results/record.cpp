#include "harness/results/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "attnbench_version.h"
#include "harness/results/host.h"
#include "harness/results/text.h"

namespace attnbench {

std::optional<Status> status_of(const std::string& name) {
  const auto* found = std::find(std::begin(kStatusNames), std::end(kStatusNames), name);
  if (found == std::end(kStatusNames)) return std::nullopt;
  return static_cast<Status>(found - std::begin(kStatusNames));
}

void Record::end_checked(const std::function<std::string()>& undecided) {
  if (!check->pass) return end(Status::kFail, check->reason);
  if (check->accepts.empty()) return end(Status::kPass, "");
  end(Status::kUndecided, undecided());
}

const std::vector<double>& Record::samples_us() const {
  static const std::vector<double> none;
  return time ? time->samples_us : none;
}

std::string record_name(const Record& r) { return r.kernel.empty() ? r.item.id : r.item.id + "/" + r.kernel; }

std::optional<double> dram_over_model(const Record& r) {
  if (!r.counters || !r.roofline || !(r.roofline->bytes > 0)) return std::nullopt;
  const CounterReading& c = *r.counters;
  if (!c.dram_read_bytes || !c.dram_write_bytes) return std::nullopt;
  const double share = r.roofline->bytes / r.item.params.devices();  // counters are those of one device
  return (*c.dram_read_bytes + *c.dram_write_bytes) / share;
}

std::string reason_text(const Record& r) {
  std::vector<std::string> names;  // a detector may fire twice
  for (const std::string& name : r.check ? r.check->failed_by : std::vector<std::string>()) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names.empty() ? r.reason : fmt::format("{} [{}]", r.reason, fmt::join(names, ", "));
}

std::string z_cell(const Verdict& v) {
  if (v.method == "refusal") return v.pass ? "refused" : "-";
  const bool has_z = v.method != "bitwise" && v.method != "interval" && v.method != "none";
  if (!v.pass && (!has_z || v.max_z <= kMaxZ)) return has_z ? digits(v.max_z, 3) + "^" : "-";
  return v.method == "bitwise" ? "exact" : has_z ? digits(v.max_z, 3) : v.method;
}

RunContext describe_run(const DeviceInfo& device, const std::string& name,
                        const std::vector<std::string>& command_line) {
  RunContext c;
  c.name = name;
  c.command_line = command_line;
  c.date = iso_date_now();
  c.host = host_name();
  c.device = device;
  c.cpu_model = cpu_model_name();
  c.cpu_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  c.version = ATTNBENCH_VERSION;
  c.revision = ATTNBENCH_REVISION;
  c.build_type = ATTNBENCH_BUILD_TYPE;
  c.cpu_mhz = cpu_max_mhz();
  c.cpu_scaling = cpu_scaling_enabled();
  c.caches = host_caches();
  c.load_avg = load_averages();
  return c;
}

}  // namespace attnbench
