// The rules of legality that cases_cover_test.cpp checks covers by. They share nothing with the generator of
// covers or the checks of the loader.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/config/case_params.h"

namespace attnbench::cover_rules {

/// Values of these keys that cannot be in one case.
struct Rule {
  std::vector<std::string> keys;
  bool (*broken)(const CaseParams&);
};

const std::vector<Rule>& rules();

/// Where a key makes no difference, so that no case counts for its values.
const std::vector<std::pair<std::string, Rule>>& dead();

}  // namespace attnbench::cover_rules
