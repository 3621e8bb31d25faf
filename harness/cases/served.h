// Steps of a replayed server as the batches of cases.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/config/case_params.h"
#include "harness/serving/replay.h"

namespace attnbench {

/// Computes each replay once, though many cases share it.
class ServedSteps {
 public:
  /// Replaces `serving` by the lengths of its step and, where `page_layout` is served, by its block table. Throws
  /// Error as replay_steps does, or if the case cannot have such a table.
  void settle(CaseParams& params);

 private:
  std::map<std::pair<std::string, int32_t>, std::vector<ReplayedStep>> steps_;  // by mapping and block size
};

}  // namespace attnbench
