// Comparisons that the tests of compare/ share.
#pragma once

#include "harness/compare/compare.h"
#include "tests/unit/record_fixtures.h"

namespace attnbench::test {

/// One case against another, alone.
inline CompareRow one(const LoadedResult& base, const LoadedResult& fresh,
                      const CompareOptions& options = {}) {
  return compare_results(set_of({base}), set_of({fresh}), options).rows.at(0);
}

}  // namespace attnbench::test
