// How many of the cases that were asked of a kernel it has run, and with which declared types.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/results/load.h"
#include "harness/results/record.h"

namespace attnbench {

struct Coverage {
  std::string kernel;           ///< empty: cases that no kernel could take
  int64_t asked = 0;            ///< cases with a result
  int64_t ran = 0;              ///< of these: not skipped
  std::set<std::string> types;  ///< declared, as types_text(): several where they depend on the case
  bool waived = false;          ///< the checks asked less of it than of other kernels (waived_text())
  std::string skipped_for;      ///< the most frequent reason of skips; empty if none was skipped

  double percent() const {
    return asked == 0 ? 100 : 100 * static_cast<double>(ran) / static_cast<double>(asked);
  }
  bool whole() const { return ran == asked; }
  /// "1 of 3 cases".
  std::string text() const;
};

class CoverageCounter {
 public:
  void add(const Record& record);
  /// One entry for each kernel, in the order of its first result.
  std::vector<Coverage> all() const;

 private:
  struct Entry {
    Coverage of;
    std::map<std::string, std::pair<int64_t, std::string>> skips;  ///< count and first reason, by its words
  };
  std::vector<Entry> kernels_;
};

std::vector<Coverage> coverage_of(std::span<const Record> records);

/// A sentence for each kernel that ran less than `percent` of its cases: its name, n of m, and why most were
/// skipped.
std::vector<std::string> too_little_run(std::span<const Record> results, double percent);

}  // namespace attnbench
