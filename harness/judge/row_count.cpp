#include "harness/judge/row_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace attnbench {
namespace {

constexpr double kOfRounding = 1;        ///< percent of O that rounding to 16 bits may explain
constexpr double kLseOfRounding = 0.01;  ///< the same of the LSE
constexpr double kOfPlace = 30;          ///< percent of O that values of other keys may explain

/// The median of the lengths of the errors in O over the expected lengths, in percent, of rows that are wrong
/// there. The worst element may be one that is expected near 0, which says little about the size of the error.
std::optional<double> typical_error(std::span<const RowFinding> rows) {
  std::vector<double> errors;
  for (const RowFinding& r : rows) {
    if (r.wrong_o && !r.nan && r.relative > 0) errors.push_back(100 * r.relative);
  }
  if (errors.empty()) return std::nullopt;
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  return *middle;
}

}  // namespace

std::string row_count_text(const CaseParams& p, std::span<const RowFinding> rows, bool every, bool lse_given,
                           bool named) {
  int64_t wrong = 0, in_o = 0, in_lse = 0, nan = 0, inf = 0, empty = 0, no_key = 0, divided_by_0 = 0;
  int first = p.dim_v(), last = -1;
  double lse_error = 0;
  for (const RowFinding& r : rows) {
    wrong += r.wrong();
    if (r.wrong_lse && !(std::abs(r.lse - r.expected_lse) <= lse_error))
      lse_error = std::abs(r.lse - r.expected_lse);
    in_o += r.wrong_o;
    in_lse += r.wrong_lse;
    nan += r.wrong() && r.nan;
    inf += r.wrong() && r.nan && r.inf;
    no_key += r.wrong() && r.keys == 0;
    divided_by_0 += r.wrong() && r.nan && r.keys == 0 && !r.wrong_lse && std::isinf(r.expected_lse);
    empty += r.keys > 0 && std::isinf(r.lse) && r.lse < 0;
    if (r.wrong_channels == 0) continue;
    first = std::min(first, r.first_channel);
    last = std::max(last, r.last_channel);
  }
  const auto some = [&](int64_t n) {
    return n == wrong ? (n == 1 ? "it is" : "all are") : fmt::format("{} {}", n, n == 1 ? "is" : "are");
  };
  const char* their = wrong == 1 ? "its" : "their";
  const std::optional<double> error = typical_error(rows);
  std::string text = fmt::format("{} of {} rows {} {} wrong", wrong, rows.size(),
                                 every ? "looked at" : "sampled", wrong == 1 ? "is" : "are");
  if (in_o == wrong && in_lse == wrong) {
    text += ", in O and LSE";
  } else if (!lse_given) {
    text += ", in O (no LSE is given)";
  } else if (in_lse == 0 && no_key == wrong) {
    text += ", in O alone";
  } else if (in_lse == 0) {
    text += fmt::format(", in O alone; {} LSE is right", their);
  } else if (in_o == 0) {
    text += fmt::format(", in the LSE alone; {} O is right", their);
  } else {
    text += fmt::format(", {} in O and {} in the LSE", in_o, in_lse);
  }
  const bool little = in_o > 0 ? error && *error < kOfRounding : lse_error < kLseOfRounding;
  if (!named && nan == 0 && little) {
    text +=
        ", by as little as rounding does: perhaps q, scores, P or their sums have fewer digits than the kernel declares "
        "(p_type, acc_type; in Python p, acc)";
  }
  const bool factor =
      std::ranges::any_of(rows, [](const RowFinding& r) { return r.wrong_o && r.factor != 0; });
  if (!named && !factor && nan == 0 && in_lse == 0 && lse_given && error && *error > kOfPlace) {
    text +=
        ", so the scores and their sums are right: perhaps P meets other values of V than it should, O is stored in "
        "another place, or parts of it are rescaled or merged by wrong factors";
  }
  if (no_key > 0) {
    text += no_key < wrong ? fmt::format("; {} see no key", no_key)
            : wrong == 1   ? "; it sees no key"
                           : "; they see no key";
    text += ", so O must be 0";
  }
  if (nan > 0)
    text += fmt::format("; {} {}", some(nan), inf == 0 ? "NaN" : inf == nan ? "infinite" : "NaN or infinite");
  if (nan > 0 && divided_by_0 == nan) text += ", as after a division by a softmax denominator of 0";
  if (empty > 0) text += fmt::format("; {} as if no key was seen, with LSE -inf", some(empty));
  // A range of nearly all channels tells nothing.
  if (last >= 0 && 4 * (last - first + 1) <= 3 * p.dim_v()) {
    text += first == last ? fmt::format("; only channel {} of {}", first, p.dim_v())
                          : fmt::format("; only channels {} to {} of {}", first, last, p.dim_v());
  }
  if (error) {
    text += fmt::format("; typical error of {} in O: {} %", wrong == 1 ? "this row" : "these rows",
                        *error < 10 ? fmt::format("{:.2g}", *error) : fmt::format("{:.0f}", *error));
  }
  return text;
}

}  // namespace attnbench
