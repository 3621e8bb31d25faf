// Merges the results of several shards into those of their sweep.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace attnbench {

/// What a merge may accept. Each must be allowed by name.
struct MergeAllowed {
  bool overlaps = false;  ///< a run in several files: the later file wins
  bool gaps = false;      ///< runs that are in no file
  bool mixed = false;     ///< another sweep, other options, another program or another device
};

/// Reads each path (results.json, or the folder of a run) and joins the entries in the order of the plan.
/// Entries are not changed. Throws ResultsError, which names files and runs, if something is not allowed or a
/// file has no results of attnbench.
nlohmann::ordered_json merge_results(const std::vector<std::string>& paths, const MergeAllowed& allowed);

}  // namespace attnbench
