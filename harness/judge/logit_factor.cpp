#include "harness/judge/logit_factor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>
#include <vector>

namespace attnbench {
namespace {

constexpr double kLeastFactor = 1.0 / 32, kMostFactor = 32;
constexpr int kGrid = 20;                ///< steps between them, each a factor of sqrt(2)
constexpr int kRefinements = 24;         ///< steps of the searches, at most
constexpr double kRefinedWithin = 1e-3;  ///< distance of the binary logarithms
/// Rows by which O gives the factor, first roughly; fewer if few are tried, because they are long.
constexpr std::size_t kRowsByO = 4, kRowsRefined = 32;
/// O alone must become this many times closer. Else a row just over its limit would suit a random factor.
constexpr double kLeastGain = 16;
constexpr double kKnownWithin = 2e-3;  ///< relative distance at which a factor is taken for a known one

class Search {
 public:
  Search(const Launched& launched, const reference::Problem& right, const reference::Inputs& inputs,
         int num_threads)
      : launched_(launched), right_(right), inputs_(inputs), threads_(num_threads) {}

  std::vector<RowFinding> rows_at(double factor, std::span<const reference::RowId> ids) const {
    reference::Problem problem = right_;
    problem.softmax_scale *= factor;
    return find_rows(launched_, problem, inputs_, ids, threads_);
  }

  /// The factors at which the row's expected LSE is the kernel's. The LSE is convex in the factor, so there
  /// are two at most.
  std::vector<double> by_lse(const reference::RowId& id) const {
    const auto miss = [&](double factor) {
      const RowFinding r = rows_at(factor, {&id, 1}).front();
      return r.expected_lse - r.lse;
    };
    std::vector<double> found;
    double lo = kLeastFactor, at_lo = miss(lo);
    for (int i = 1; i <= kGrid; ++i) {
      const double hi = kLeastFactor * std::exp2(0.5 * i), at_hi = miss(hi);
      if ((at_lo < 0) != (at_hi < 0)) found.push_back(zero_of(miss, {lo, at_lo}, {hi, at_hi}));
      lo = hi;
      at_lo = at_hi;
    }
    return found;
  }

  /// The factor at which O of the rows is closest.
  double by_o(std::span<const reference::RowId> ids) const {
    double best = 0, least = INFINITY;
    for (int i = 0; i <= kGrid; ++i) {
      const double at = std::log2(kLeastFactor) + 0.5 * i, figure = miss_of_o(at, ids);
      if (figure < least) std::tie(best, least) = std::pair(at, figure);
    }
    return closest(best - 0.5, best + 0.5, ids);
  }

  /// The same near `factor`, if O is much closer there than at 1.
  std::optional<double> refined(double factor, std::span<const reference::RowId> ids) const {
    const double at = std::log2(factor);
    if (!(miss_of_o(at, ids) * kLeastGain <= miss_of_o(0, ids))) return std::nullopt;
    return closest(at - kRefinedWithin, at + kRefinedWithin, ids);
  }

 private:
  /// How far O of the rows is from that of the factor, given by its binary logarithm.
  double miss_of_o(double log_factor, std::span<const reference::RowId> ids) const {
    double sum = 0;
    for (const RowFinding& r : rows_at(std::exp2(log_factor), ids)) sum += r.mean_z2;
    return sum;
  }

  /// Golden section between two logarithms of factors.
  double closest(double lo, double hi, std::span<const reference::RowId> ids) const {
    constexpr double kGolden = std::numbers::phi - 1;
    double a = hi - kGolden * (hi - lo), b = lo + kGolden * (hi - lo);
    double at_a = miss_of_o(a, ids), at_b = miss_of_o(b, ids);
    for (int i = 0; i < kRefinements; ++i) {
      if (at_a < at_b) {
        hi = std::exchange(b, a);
        at_b = at_a;
        a = hi - kGolden * (hi - lo);
        at_a = miss_of_o(a, ids);
      } else {
        lo = std::exchange(a, b);
        at_a = at_b;
        b = lo + kGolden * (hi - lo);
        at_b = miss_of_o(b, ids);
      }
    }
    return std::exp2((lo + hi) / 2);
  }

  /// Regula falsi with the Illinois rule: it keeps the bracket and takes few steps on a smooth function.
  template <typename Miss>
  static double zero_of(const Miss& miss, std::pair<double, double> a, std::pair<double, double> b) {
    for (int i = 0; i < kRefinements && b.second != 0; ++i) {
      const double x = b.first - b.second * (b.first - a.first) / (b.second - a.second);
      if (!std::isfinite(x) || std::abs(x - b.first) <= 1e-12 * b.first) break;
      const std::pair<double, double> next(x, miss(x));
      if ((next.second < 0) != (b.second < 0)) {
        a = b;
      } else {
        a.second /= 2;
      }
      b = next;
    }
    return b.first;
  }

  const Launched& launched_;
  const reference::Problem& right_;
  const reference::Inputs& inputs_;
  int threads_;
};

}  // namespace

std::optional<LogitFactor> logit_factor(const Launched& launched, const reference::Problem& right,
                                        const reference::Inputs& inputs, std::span<const RowFinding> rows,
                                        std::span<const reference::RowId> tried, int num_threads) {
  const Search search(launched, right, inputs, num_threads);
  const bool lse_given = !launched.outputs.no_lse;
  const auto explains = [&](double factor) -> std::optional<LogitFactor> {
    const std::vector<RowFinding> found = search.rows_at(factor, tried);
    const auto in_o = [](const RowFinding& r) { return r.wrong_o || r.nan; };
    if (std::ranges::any_of(found, in_o)) return std::nullopt;
    const auto in_lse = [](const RowFinding& r) { return r.wrong_lse; };
    return LogitFactor{factor, std::ranges::none_of(found, in_lse)};
  };
  // The row whose LSE is off most is the one that the factor moves most, so it gives the factor best.
  const RowFinding* most = nullptr;
  std::vector<const RowFinding*> in_o;
  for (const RowFinding& r : rows) {
    if (r.nan || r.keys == 0) continue;
    if (r.wrong_o) in_o.push_back(&r);
    if (!r.wrong_lse || !std::isfinite(r.lse) || !std::isfinite(r.expected_lse)) continue;
    if (most == nullptr || std::abs(r.lse - r.expected_lse) > std::abs(most->lse - most->expected_lse))
      most = &r;
  }
  if (in_o.empty() || (lse_given && most == nullptr)) return std::nullopt;  // a right LSE has the right scale
  std::vector<reference::RowId> wrong;
  std::ranges::sort(in_o, [](const RowFinding* a, const RowFinding* b) { return a->mean_z2 > b->mean_z2; });
  for (const RowFinding* r : in_o) wrong.push_back(r->id);
  const std::span few(wrong.data(), std::min({kRowsByO, wrong.size(), 1 + tried.size() / 8}));
  const std::span more(wrong.data(), std::min({kRowsRefined, wrong.size(), 1 + tried.size() / 2}));
  if (lse_given) {
    for (const double factor : search.by_lse(most->id)) {
      if (const auto found = explains(factor)) return found;
      const auto finer = search.refined(factor, more);
      if (const auto found = finer ? explains(*finer) : std::nullopt) return found;
    }
  }
  const auto factor = search.refined(search.by_o(few), more);
  return factor ? explains(*factor) : std::nullopt;
}

std::string logit_factor_text(const CaseParams& p, double softmax_scale, double factor) {
  const double s = softmax_scale, d = p.head_dim, dv = p.dim_v();
  const auto padded = static_cast<double>(std::bit_ceil(static_cast<unsigned>(p.head_dim)));
  struct Known {
    double factor;
    std::string text;
  };
  const std::array known = {
      Known{1 / s, "it is not applied"},
      Known{1 / (d * s), "1/head_dim, not its root"},
      Known{1 / (std::sqrt(d) * s), "1/sqrt(head_dim)"},
      Known{1 / (std::sqrt(dv) * s), "1/sqrt(head_dim_v)"},
      Known{1 / (std::sqrt(padded) * s), fmt::format("1/sqrt({}), of the padded head_dim", padded)},
      Known{s, "it is applied twice"},
      Known{1 / std::sqrt(s), "its root, as if one of Q and K were not scaled"},
      Known{std::numbers::log2e, "log2(e), which only scores of exp2 need once"},
      Known{std::numbers::log2e * std::numbers::log2e, "log2(e) squared"},
      Known{std::numbers::ln2, "log2(e) is missing in scores of exp2"},
      Known{std::numbers::log2e / s, "log2(e) is applied, but not the scale"},
      Known{std::numbers::ln10, "ln(10)"},
      Known{std::numbers::sqrt2, "sqrt(2), as from 1/sqrt(head_dim / 2)"},
      Known{1 / std::numbers::sqrt2, "1/sqrt(2), as from 1/sqrt(2 head_dim)"},
      Known{2, "twice the scale"},
      Known{0.5, "half the scale"},
  };
  std::string text =
      fmt::format("logits times {:.4g} (softmax_scale {:.4g} in place of {:.4g})", factor, s * factor, s);
  for (const Known& k : known) {
    if (std::abs(factor / k.factor - 1) > kKnownWithin || std::abs(k.factor - 1) <= kKnownWithin) continue;
    return text + ": " + k.text;
  }
  return text;
}

}  // namespace attnbench
