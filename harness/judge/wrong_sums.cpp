#include "harness/judge/wrong_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <tuple>
#include <vector>

#include "reference/plan.h"

namespace attnbench {
namespace {

class Sums {
 public:
  Sums(const reference::Problem& problem, std::span<const RowFinding> rows) : p_(problem) {
    for (const RowFinding& r : rows) {
      expected_[{r.id.seq, r.id.pos, r.id.head}] = r.expected_lse;
      if (!r.wrong_lse) {
        right_ += r.keys > 0;
      } else {
        all_finite_ = all_finite_ && std::isfinite(r.lse) && std::isfinite(r.expected_lse);
        wrong_.push_back(&r);
      }
    }
  }

  using Common = std::string (Sums::*)() const;
  /// The first that is not empty.
  std::string text(std::initializer_list<Common> tried) const {
    if (wrong_.size() < 2 || !all_finite_) return "";
    for (const Common of : tried) {
      if (const std::string found = (this->*of)(); !found.empty()) return "looks like: " + found;
    }
    return "";
  }

  std::string of_alibi() const {
    if (p_.alibi_slopes.empty() || p_.alibi_sqrt) return "";
    const auto heads = static_cast<std::size_t>(p_.num_heads_q);
    for (const int sign : {1, -1}) {
      const auto fits = [&](const RowFinding& r) {
        const auto head = static_cast<std::size_t>(r.id.head);
        const double slope = p_.alibi_slopes[p_.alibi_slopes.size() == heads
                                                 ? head
                                                 : static_cast<std::size_t>(r.id.seq) * heads + head];
        const double by = sign * slope * static_cast<double>(reference::diagonal(p_, r.id.seq, r.id.pos));
        return std::abs(shift(r) - by) <= 10 * error(r) + 1e-6 * std::abs(by);
      };
      if (all(fits))
        return fmt::format("ALiBi counts from key 0, not from the diagonal: the LSE is off by {}slope * diag",
                           sign < 0 ? "-" : "");
    }
    return "";
  }

  std::string of_sinks() const {
    if (p_.sinks.empty()) return "";
    int most = 0;
    const auto fits = [&](const RowFinding& r) {
      const double sink = std::exp(p_.sinks[static_cast<std::size_t>(r.id.head)]), times = extra(r) / sink;
      most = std::max(most, static_cast<int>(std::lround(times)));
      return times > 0.5 && std::abs(times - std::round(times)) <= 0.02 + extra_error(r) / sink &&
             extra_error(r) < 0.2 * sink;
    };
    if (!all(fits)) return "";
    return fmt::format("the sink counts more than once, up to {} times, as if each split or tile added it",
                       most + 1);
  }

  /// As many keys of score 0 in each row.
  std::string of_zeros() const {
    const double n = std::round(extra(*wrong_.front()));
    const auto fits = [n](const RowFinding& r) {
      return std::abs(extra(r) - n) <= 0.01 * n + extra_error(r) && extra_error(r) < 0.25 * n;
    };
    if (n < 1 || right_ > 0 || !all(fits)) return "";
    return fmt::format(
        "{} exp(0) too much in the sum of each row, as by a split without keys, or keys that are masked by a score of 0",
        n == 1 ? "one term" : fmt::format("{:.0f} terms", n));
  }

  /// The LSE alone has a sum that is too large by a factor.
  std::string of_factor() const {
    const double by = shift(*wrong_.front());
    const auto fits = [by](const RowFinding& r) {
      return !r.wrong_o && std::abs(shift(r) - by) <= 10 * error(r);
    };
    if (right_ > 0 || !all(fits)) return "";
    const double times = 1 / (std::exp(by) - 1);
    const bool whole = times > 1.5 && std::abs(times - std::round(times)) < 0.01 * times;
    return fmt::format("the LSE is too large by {:.4g} in all rows: {}", by,
                       whole ? fmt::format("one of {:.0f} parts counts twice in its sum", times)
                             : fmt::format("its sum has a factor of {:.4g}", std::exp(by)));
  }

  std::string of_neighbours() const {
    struct Step {
      const char* text;
      int pos, head;
    };
    for (const Step& s : {Step{"the next query", 1, 0}, Step{"the query before", -1, 0},
                          Step{"the next head", 0, 1}, Step{"the head before", 0, -1}}) {
      const auto fits = [&](const RowFinding& r) {
        const auto other = expected_.find({r.id.seq, r.id.pos + s.pos, r.id.head + s.head});
        // The neighbour of the last row is not known.
        return other == expected_.end() || std::abs(other->second - r.lse) <= 10 * error(r);
      };
      const auto known = std::ranges::count_if(wrong_, [&](const RowFinding* r) {
        return expected_.contains({r->id.seq, r->id.pos + s.pos, r->id.head + s.head});
      });
      if (2 * known > std::ssize(wrong_) && all(fits))
        return fmt::format("wrong rows have the LSE of {}", s.text);
    }
    return "";
  }

 private:
  static double error(const RowFinding& r) { return 2e-6 * (1 + std::abs(r.expected_lse)); }
  static double shift(const RowFinding& r) { return r.lse - r.expected_lse; }
  /// What the sum of exponentials has too much, and how exactly that is known.
  static double extra(const RowFinding& r) { return std::exp(r.lse) - std::exp(r.expected_lse); }
  static double extra_error(const RowFinding& r) { return error(r) * std::exp(r.expected_lse); }

  template <class Fits>
  bool all(Fits fits) const {
    return std::ranges::all_of(wrong_, [&](const RowFinding* r) { return fits(*r); });
  }

  const reference::Problem& p_;
  std::map<std::tuple<int, int, int>, double> expected_;
  std::vector<const RowFinding*> wrong_;
  int64_t right_ = 0;  ///< rows that see a key
  bool all_finite_ = true;
};

}  // namespace

std::string wrong_sums(const reference::Problem& problem, std::span<const RowFinding> rows) {
  return Sums(problem, rows)
      .text({&Sums::of_alibi, &Sums::of_sinks, &Sums::of_zeros, &Sums::of_factor, &Sums::of_neighbours});
}

std::string alibi_shift(const reference::Problem& problem, std::span<const RowFinding> rows) {
  return Sums(problem, rows).text({&Sums::of_alibi});
}

}  // namespace attnbench
