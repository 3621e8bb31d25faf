// The weight that a kernel gives each key of a row, against the right one. Launches whose V are unit vectors show it: O
// is then the weights themselves.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "reference/reference.h"

namespace attnbench {

/// Keys of a row are those of its sequence, visible or not.
struct WeighedRow {
  reference::RowId id;
  std::vector<char> seen;      ///< (keys) whether the row must see the key
  std::vector<double> score;   ///< (keys) also where the key is masked
  std::vector<double> weight;  ///< (keys) as launched
  double lse = 0, got_lse = 0;

  int keys() const { return static_cast<int>(seen.size()); }
  int first() const;  ///< of the visible keys; -1: none
  int last() const;
};

/// The rows of a case without `weight` and `got_lse`. `zero_q`: q is 0, so that scores hold biases alone.
std::vector<WeighedRow> rows_to_weigh(const Case& c, std::span<const reference::RowId> ids, bool zero_q,
                                      int num_threads);

/// Whether all weights are exp(score) / sum, and 0 for keys that are not visible.
bool are_right(std::span<const WeighedRow> rows, double tolerance);

/// How often each visible or other key counts in a row. At q = 0 all keys weigh the same but for biases, so weights are
/// counts, whatever K holds.
struct KeyCounts {
  std::vector<std::vector<double>>
      of;                   ///< (rows)(keys): 1 for each visible key, 0 for others, if all is right
  std::string clue;         ///< which keys count too little or too often; empty: none
  bool only_twice = false;  ///< the clue is only that visible keys count several times
};
/// As if all were right.
KeyCounts right_counts(std::span<const WeighedRow> rows);
KeyCounts count_keys(const CaseParams& p, std::span<const WeighedRow> at_zero_q, double tolerance);

/// How the weights of keys that count as in `counts` differ from exp(score) / sum, in words. Empty: they do not.
std::string weights_clue(const CaseParams& p, std::span<const WeighedRow> rows, const KeyCounts& counts,
                         double tolerance);

/// "32 to 47, 50", in ascending order; at most some of them.
std::string ranges_text(const std::vector<int>& keys);

/// "32 to 63 those of 0 to 31" for the keys and others of a map, with the `verb` between them.
std::string pairs_text(const std::map<int, int>& of, const char* verb);

/// Where V of other keys is read than the weights are of, in words; empty: nowhere, or the LSE is wrong, too.
std::string value_places(const CaseParams& p, std::span<const WeighedRow> rows, double tolerance);

/// A rule for a set of keys in each row. `in` are the members, `may` where they could be, both (rows)(keys).
std::string rule_of_keys(const CaseParams& p, std::span<const WeighedRow> rows,
                         const std::vector<std::vector<char>>& in, const std::vector<std::vector<char>>& may);

}  // namespace attnbench
