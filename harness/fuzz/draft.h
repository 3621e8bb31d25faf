// A case before it is one: the keys that it sets. Generator and shrinker change drafts; the parser and the
// checks of `run` decide which of them are cases.
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
  std::map<std::string, std::string> values;  ///< by key, all but `batch`; a key that is missing is default
  std::vector<SeqLen> seqs;
  uint64_t seed = 1;  ///< of all values of the tensors
  bool operator==(const Draft&) const = default;
};

/// "{mask: causal, window: \"17,0\", batch: 4q512}".
std::string mapping_of(const Draft& draft);

class DraftReader {
 public:
  /// The case; nullopt where its keys contradict each other, and why() says what the parser said.
  std::optional<Case> read(const Draft& draft);
  const std::string& why() const { return why_; }

 private:
  const Setting& setting(const std::string& key, const std::string& value);

  std::unordered_map<std::string, Setting> read_before_;  ///< YAML is slow to read, and values are few
  std::string why_;
};

}  // namespace attnbench
