// What `gate --calibrate` learns and stores: how far equal runs lie apart on this machine.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/compare/ratio.h"
#include "harness/record/load.h"

namespace attnbench {

struct NoiseFile {
  LoadedContext context;  ///< of the runs it was learnt from
  int pairs = 0;
  int false_alarms = 0;                      ///< pairs that a comparison without it called slower or faster
  double min_effect = 0;                     ///< of those comparisons
  std::map<std::string, RunNoise> noise_of;  ///< by "<id>/<kernel>"
};

/// From runs of the same things: the standard deviation over runs of the log of each midmean. What passed in
/// fewer than two runs is left out.
std::map<std::string, RunNoise> noise_between(std::span<const ResultSet> runs);

std::string noise_to_text(const NoiseFile& noise);

/// Reads what noise_to_text wrote. Throws ResultsError.
NoiseFile load_noise(const std::string& path);

}  // namespace attnbench
