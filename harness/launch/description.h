// A plug-in as JSON: what a process that has opened it tells one that has not. Plug-ins in Python write the
// same (harness/python/attnbench/_host.py).
//
//   {"kernels": [{"name", "summary", "shapes", "op", "device", "min_compute_capability", "flags", "features",
//                 "instances"}],           instances may be missing
//    "digest", "versions": {name: text},   may be missing
//    "flushed"}                            may be missing
//   {"error", "absent"}                    in place of all: PluginError, PluginAbsent::why(); absent may be missing
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/launch/opening_child.h"
#include "harness/launch/plugin.h"

namespace attnbench {

/// An entry of "kernels".
nlohmann::json description_of(const Kernel& kernel);
std::string description_of(const LoadedPlugin& plugin);
std::string description_of(const PluginError& error);

/// What a described kernel does when it is called. It has all functions.
struct KernelFunctions {
  decltype(Kernel::supports) supports;
  decltype(Kernel::numerics) numerics;
  decltype(Kernel::workspace_bytes) workspace_bytes;
  decltype(Kernel::plan) plan;
  decltype(Kernel::launch) launch;
  decltype(Kernel::tile) tile;
};
/// The kernel of an entry. It lives until the process ends. Throws nlohmann::json::exception.
const Kernel* described_kernel(const nlohmann::json& entry, const KernelFunctions& functions);

/// The plug-in by the description that a child process writes. Its kernels live until the process ends and
/// can be listed, chosen and named; a call throws. Throws PluginError and what is derived from it.
LoadedPlugin described_by_child(const Opening& opening);

}  // namespace attnbench
