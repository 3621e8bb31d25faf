// A plug-in as JSON: what a process that has opened it tells one that has not. Plug-ins in Python write the
// same (harness/python/attnbench/_host.py).
//
//   {"kernels": [{"name", "summary", "shapes", "op", "device", "min_compute_capability", "flags", "features",
//                 "instances"}],           instances may be missing
//    "digest", "versions": {name: text},   may be missing
//    "flushed"}                            may be missing
//   {"error", "absent"}                    in place of all: PluginError, PluginAbsent::why(); absent may be missing
#pragma once

#include <string>

#include "harness/launch/opening_child.h"
#include "harness/launch/plugin.h"

namespace attnbench {

std::string description_of(const LoadedPlugin& plugin);
std::string description_of(const PluginError& error);

/// The plug-in by the description that a child process writes. Its kernels live until the process ends and
/// can be listed, chosen and named; a call throws. Throws PluginError and what is derived from it.
LoadedPlugin described_by_child(const Opening& opening);

}  // namespace attnbench
