#include "harness/launch/description.h"

#include <fmt/format.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace attnbench {
namespace {

using nlohmann::json;

/// A described kernel, and the texts that it refers to.
struct Described {
  std::string name, summary, shapes, instances;
  Kernel kernel;
};

[[noreturn]] void refuse_call() {
  throw std::logic_error("a kernel was called in a process that has not opened its plug-in");
}

std::string text_of(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

const Kernel* described_kernel(const json& j, const KernelFunctions& functions) {
  static std::deque<Described> all;
  Described& d = all.emplace_back();
  d.name = j.at("name").get<std::string>();
  d.summary = j.at("summary").get<std::string>();
  d.shapes = j.at("shapes").get<std::string>();
  d.instances = j.value("instances", "");
  Kernel& k = d.kernel;
  k.abi_version = kKernelAbiVersion;
  k.flags = j.at("flags").get<uint32_t>();
  k.name = d.name.c_str();
  k.summary = d.summary.c_str();
  k.shapes = d.shapes.c_str();
  k.op = static_cast<Op>(j.at("op").get<int32_t>());
  k.device = static_cast<DeviceKind>(j.at("device").get<int32_t>());
  k.min_compute_capability = j.at("min_compute_capability").get<int32_t>();
  k.features = j.at("features").get<uint64_t>();
  k.supports = functions.supports;
  k.numerics = functions.numerics;
  k.workspace_bytes = functions.workspace_bytes;
  k.plan = functions.plan;
  k.launch = functions.launch;
  k.tile = functions.tile;
  k.instances = d.instances.empty() ? nullptr : d.instances.c_str();
  return &k;
}

json description_of(const Kernel& k) {
  return {{"name", k.name},
          {"summary", k.summary},
          {"shapes", k.shapes},
          {"op", static_cast<int32_t>(k.op)},
          {"device", static_cast<int32_t>(k.device)},
          {"min_compute_capability", k.min_compute_capability},
          {"flags", k.flags},
          {"features", k.features},
          {"instances", k.instances != nullptr ? k.instances : ""}};
}

std::string description_of(const LoadedPlugin& plugin) {
  json kernels = json::array();
  for (const Kernel* k : plugin.kernels) kernels.push_back(description_of(*k));
  return text_of({{"kernels", kernels}, {"digest", plugin.digest}, {"flushed", plugin.flushed}});
}

std::string description_of(const PluginError& error) { return text_of({{"error", error.what()}}); }

LoadedPlugin described_by_child(const Opening& opening) {
  const auto supports = [](const OpParams*, const LaunchContext*, KernelMessage*) -> KernelStatus {
    refuse_call();
  };
  const auto numerics = [](const OpParams*) -> Numerics { refuse_call(); };
  const KernelFunctions functions{supports, numerics, nullptr, nullptr, supports, nullptr};
  LoadedPlugin plugin{opening.file, "", {}};
  const std::string text = answer_of_child(opening);
  try {
    const json answer = json::parse(text);
    if (answer.contains("error")) {
      const auto error = answer.at("error").get<std::string>();
      const std::string absent = answer.value("absent", "");
      if (!absent.empty()) throw PluginAbsent(error, absent);
      throw PluginError(error);
    }
    plugin.digest = answer.value("digest", "");
    plugin.flushed = answer.value("flushed", false);
    for (const json& kernel : answer.at("kernels"))
      plugin.kernels.push_back(described_kernel(kernel, functions));
    const json versions = answer.value("versions", json::object());  // items() refers to it
    for (const auto& [name, version] : versions.items())
      plugin.versions.emplace_back(name, version.get<std::string>());
  } catch (const json::exception& e) {
    throw PluginError(fmt::format("its description cannot be read: {}", e.what()));
  }
  check_entries(plugin.kernels);
  return plugin;
}

}  // namespace attnbench
