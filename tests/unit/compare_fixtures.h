// Comparisons shared by the tests of compare/.
#pragma once

#include "harness/compare/compare.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench::test {

/// Compares one case with another one.
inline CompareRow one(const Record& base, const Record& fresh, const CompareOptions& options = {}) {
  return compare_results(set_of({base}), set_of({fresh}), options).rows.at(0);
}

}  // namespace attnbench::test
