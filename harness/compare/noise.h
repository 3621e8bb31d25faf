// The noise file of `gate --calibrate`: how far equal runs differ on this machine.
#pragma once

#include <map>
#include <span>
#include <string>

#include "harness/compare/ratio.h"
#include "harness/results/load.h"

namespace attnbench {

struct NoiseFile {
  RunContext context;  ///< context of the measured runs
  int pairs = 0;
  int false_alarms = 0;                      ///< pairs called slower or faster without this file
  double min_effect = 0;                     ///< minimum effect of those comparisons
  std::map<std::string, RunNoise> noise_of;  ///< by "<id>/<kernel>"
};

/// Noise from runs of the same cases and kernels: the standard deviation over runs of the log of each
/// midmean. A case that passed in fewer than two runs is left out.
std::map<std::string, RunNoise> noise_between(std::span<const ResultSet> runs);

std::string noise_to_text(const NoiseFile& noise);

/// Reads the text of noise_to_text from a file. Throws ResultsError.
NoiseFile load_noise(const std::string& path);

}  // namespace attnbench
