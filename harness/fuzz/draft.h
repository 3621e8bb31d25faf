// A draft: the keys that a case sets, not yet checked. The generator and the shrinker change drafts; the
// parser and the checks of `run` decide which drafts are cases.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/cases/case.h"

namespace attnbench {

struct Draft {
  std::map<std::string, std::string> values;  ///< by key, without `batch`; missing keys have their defaults
  std::vector<SeqLen> seqs;
  uint64_t seed = 1;  ///< seed of the tensors' values
  bool operator==(const Draft&) const = default;
};

/// "{mask: causal, window: \"17,0\", batch: 4q512}".
std::string mapping_of(const Draft& draft);

class DraftReader {
 public:
  /// The case; nullopt if its keys contradict each other. why() then has the parser's message.
  std::optional<Case> read(const Draft& draft);
  const std::string& why() const { return why_; }

 private:
  const Setting& setting(const std::string& key, const std::string& value);

  std::unordered_map<std::string, Setting> read_before_;  ///< by YAML, which is slow to read
  std::string why_;
};

}  // namespace attnbench
