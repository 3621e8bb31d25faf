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
  /// Replaces `serving` by the lengths of its step and, where `page_layout` is served, by its block table. `place` is
  /// that of the value in the file. Throws Error and BadTraceError as replay_steps does, or if the case cannot have such
  /// a table.
  void settle(CaseParams& params, const std::string& place);

  /// What users must know of the replays: "t.yaml:3:5: note: 2 lines skipped; ...".
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::map<std::pair<std::string, int32_t>, Replay> replays_;  // by mapping and block size
  std::vector<std::string> notes_;
};

}  // namespace attnbench
