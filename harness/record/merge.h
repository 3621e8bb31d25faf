// Results of several shards become those of the one sweep that they are parts of.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace attnbench {

/// What a merge may do all the same; each has to be asked for by name.
struct MergeAllowed {
  bool overlaps = false;  ///< a run in several files: the later file's counts
  bool gaps = false;      ///< runs that no file holds
  bool mixed = false;     ///< another sweep, other options, another program or another device
};

/// Reads each path (results.json, or the folder of a run) and joins the entries in the order of the plan.
/// Entries are taken over as they are. Throws ResultsError, naming files and runs, where something is not
/// allowed or no results of attnbench.
nlohmann::ordered_json merge_results(const std::vector<std::string>& paths, const MergeAllowed& allowed);

}  // namespace attnbench
