// Judges merge_states. Its inputs are exact, so few roundings lie between them and the output: those of the
// weights exp(lse_s - max), of a sum over the states, and of the output's type.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <random>

#include "harness/judge/error_model.h"
#include "harness/judge/group_factors.h"
#include "harness/judge/made_up.h"
#include "harness/judge/sample.h"
#include "harness/judge/stored_out.h"
#include "harness/ops/judge_ops.h"
#include "harness/ops/merge_states/tensors_states.h"
#include "harness/values/values.h"
#include "reference/merge.h"

namespace attnbench {
namespace {

/// A sampled check compares about this many elements of the states. The rest is only scanned for NaN.
constexpr int64_t kSampledElements = int64_t{1} << 27;
constexpr int kRowsTried = 64;  ///< wrong rows that a mistake must explain

/// A mistake in the weights of a row, as other LSEs of its states. -inf: the state is empty.
struct MergeMistake {
  const char* text;
  void (*change)(std::vector<double>& lse);
};
constexpr MergeMistake kMistakes[] = {
    {"weights are powers of 2 of LSEs of base e",
     [](auto& lse) {
       for (double& x : lse) x *= std::numbers::ln2;
     }},
    {"weights are powers of e of LSEs of base 2",
     [](auto& lse) {
       for (double& x : lse) x *= std::numbers::log2e;
     }},
    {"states have equal weights",
     [](auto& lse) {
       for (double& x : lse) x = std::isinf(x) ? x : 0;
     }},
    {"the first state is left out", [](auto& lse) { lse.front() = -INFINITY; }},
    {"the last state is left out", [](auto& lse) { lse.back() = -INFINITY; }},
    {"a state has the LSE of the next one",
     [](auto& lse) { std::rotate(lse.begin(), lse.begin() + 1, lse.end()); }},
    {"the state with the greatest LSE is taken alone",
     [](auto& lse) {
       const double top = *std::ranges::max_element(lse);
       for (double& x : lse) x = x < top ? -INFINITY : x;
     }},
};

class MergeJudge {
 public:
  /// `expected`: gets what the outputs of rows that are compared must be; null: it is not wanted.
  MergeJudge(const Case& c, const HostOutputs& outputs, const Numerics& numerics,
             ExpectedOutputs* expected = nullptr)
      : c_(c),
        p_(c.params),
        outputs_(outputs),
        n_(numerics),
        stored_(c),
        model_(numerics, stored_.type, c.params.head_dim, 0, 1, 0, stored_.scale),
        rows_(merge_rows(c.params)),
        values_(static_cast<std::size_t>(p_.head_dim)),
        expected_(expected) {
    if (expected_ == nullptr) return;
    const int64_t heads = p_.num_heads_q;
    expected_->tensors = {not_compared("out", {rows_, heads, p_.head_dim}),
                          not_compared("lse", p_.out_lse_token_major ? std::vector<int64_t>{rows_, heads}
                                                                     : std::vector<int64_t>{heads, rows_})};
  }

  /// Checks that a row is finite, or empty if all its states are; with `full`, compares it as well. Keeps the
  /// first complaint.
  void take(int64_t row, int head, bool full) {
    const double lse = static_cast<double>(outputs_.lse[static_cast<std::size_t>(head * rows_ + row)]);
    bool empty = true;
    states_ = states_of_row(c_, row);
    lse_.resize(static_cast<std::size_t>(states_));
    for (int s = 0; s < states_; ++s) {
      const double x = partial_lse_of(c_, s, row, head);
      lse_[static_cast<std::size_t>(s)] = std::isinf(x)  ? -INFINITY
                                          : p_.lse_base2 ? x * std::numbers::ln2
                                                         : x;
      empty = empty && std::isinf(x);
    }
    const auto place = [&] { return fmt::format("row {} head {}", row, head); };
    if (empty ? !(lse == -INFINITY) : !std::isfinite(lse)) {
      complain(empty, fmt::format("LSE of {} is {}, expected {}", place(), lse,
                                  empty ? "-inf (all its states are empty)" : "a finite number"));
    }
    for (int d = 0; d < p_.head_dim; ++d) {
      const double o = out(row, head, d);
      if (empty ? !(o == 0) : !std::isfinite(o)) {
        complain(empty, fmt::format("O of {} channel {} is {}, expected {}", place(), d, o,
                                    empty ? "0 (all its states are empty)"
                                          : "a finite number (an empty state's O must not be used)"));
      }
    }
    note_special(row, head, lse, empty);
    if (!full) return;
    ++v_.rows;
    if (!empty) return compare(row, head, lse);
    for (int d = 0; d < p_.head_dim; ++d) expect_out(row, head, d, 0, 0);
    expect_lse(row, head, -INFINITY, 0);
  }

  Verdict conclude() {
    v_.rms_z = elements_ > 0 ? std::sqrt(sum_z2_ / static_cast<double>(elements_)) : 0;
    double limit = INFINITY;
    if (sxx_ > 0) {
      v_.slope = sxy_ / sxx_;
      v_.bias_se = std::abs(v_.slope) * std::sqrt(sxx_);
      limit = kMaxBiasSe / std::sqrt(sxx_) + kBiasFloor + model_.rounding_bias();
    }
    if (zeros_.accepted(-1, limit)) v_.accepts.emplace_back(made_up::kZeros);
    if (mean_.accepted(sxx_ > 0 ? mean_xy_ / sxx_ : 0, limit))
      v_.accepts.emplace_back(made_up::kMeanOfStates);
    v_.pass = true;
    if (!complaint_.empty()) v_.fail(complaint_detector_, complaint_);
    if (!(v_.max_z <= kMaxZ)) {
      const WorstElement& w = v_.worst;
      v_.fail(detector::kMaxZ,
              fmt::format("O of row {} head {} channel {}: got {:.9g}, expected {:.9g}, |z| = {:.3g} > {}",
                          w.pos, w.head, w.channel, w.got, w.expected, v_.max_z, kMaxZ));
    }
    if (!(v_.max_row_z2 <= 1.0)) {
      v_.fail(detector::kRowZ2, fmt::format("O of {}: mean z^2 over its channels is {:.3g} times its limit",
                                            worst_row_, v_.max_row_z2));
    }
    if (!(v_.lse_max_z <= kMaxZ)) {
      v_.fail(detector::kLse, fmt::format("LSE of {}: |z| = {:.3g} > {}", worst_lse_, v_.lse_max_z, kMaxZ));
    }
    if (sxx_ > 0 && !(std::abs(v_.slope) <= limit)) {
      v_.fail(detector::kBias, bias_text("O", v_.slope, v_.bias_se, limit));
    }
    special_.add_to(v_.clues);
    std::string of_scale = v_.pass ? "" : out_scale_clue(c_, of_scale_);
    if (!of_scale.empty()) v_.clues.push_back(std::move(of_scale));
    for (std::size_t i = 0; i < std::size(kMistakes) && tried_ > 0; ++i) {
      if (!fits_[i].o) continue;
      v_.clues.push_back(fmt::format("looks like: {} ({}all {} wrong rows tried match this mistake{})",
                                     kMistakes[i].text, fits_[i].lse ? "" : "perhaps: ", tried_,
                                     fits_[i].lse ? "" : ", but not in their LSE"));
    }
    return v_;
  }

 private:
  void expect_out(int64_t row, int head, int channel, double o, double sigma) {
    if (expected_ == nullptr) return;
    ExpectedOutput& to = expected_->tensors.front();
    const auto at = static_cast<std::size_t>((row * p_.num_heads_q + head) * p_.head_dim + channel);
    to.value[at] = o / stored_.scale;
    to.sigma[at] = static_cast<float>(sigma / stored_.scale);
  }
  void expect_lse(int64_t row, int head, double lse, double sigma) {
    if (expected_ == nullptr) return;
    ExpectedOutput& to = expected_->tensors.back();
    const double unit = p_.lse_base2 ? std::numbers::ln2 : 1;
    const auto at =
        static_cast<std::size_t>(p_.out_lse_token_major ? row * p_.num_heads_q + head : head * rows_ + row);
    to.value[at] = lse / unit;
    to.sigma[at] = static_cast<float>(sigma / unit);
  }

  double out(int64_t row, int head, int channel) const {
    return stored_.value(outputs_.out, (row * p_.num_heads_q + head) * int64_t{p_.head_dim} + channel);
  }
  /// What rows that are not finite, or wrong in their LSE, have in common.
  struct Special {
    int64_t nan = 0, nan_empty = 0, nan_beside_empty = 0, nan_beside_inf = 0, inf_empty = 0, beside_empty = 0;
    int64_t wrong_lse = 0, largest_lse = 0;

    void add_to(std::vector<std::string>& clues) const {
      if (nan > 0 && nan == nan_empty)
        clues.emplace_back("looks like: rows whose states are all empty become NaN, as by exp(-inf - -inf)");
      else if (nan > 0 && nan == nan_beside_inf + nan_empty)
        clues.emplace_back("looks like: a state with LSE = inf has a weight: it is empty, too");
      else if (nan > 0 && nan == nan_beside_empty && nan == beside_empty)
        clues.emplace_back("looks like: O of empty states is used: a weight of 0 does not remove NaN");
      if (inf_empty > 0)
        clues.emplace_back("looks like: LSE of rows whose states are all empty is inf, not -inf");
      if (wrong_lse > 0 && wrong_lse == largest_lse)
        clues.emplace_back("looks like: the merged LSE is that of the largest state");
    }
  };
  void note_special(int64_t row, int head, double lse, bool empty) {
    bool nan = std::isnan(lse), beside = false, inf = false;
    for (int d = 0; d < p_.head_dim; ++d) nan = nan || std::isnan(out(row, head, d));
    for (int s = 0; s < states_; ++s) {
      const double x = partial_lse_of(c_, s, row, head);
      beside = beside || std::isinf(x);
      inf = inf || x == INFINITY;
    }
    special_.beside_empty += beside && !empty;
    special_.inf_empty += empty && lse == INFINITY;
    special_.nan += nan;
    special_.nan_empty += nan && empty;
    special_.nan_beside_empty += nan && beside && !empty;
    special_.nan_beside_inf += nan && inf && !empty;
  }
  void complain(bool empty, std::string text) {
    if (!complaint_.empty()) return;
    complaint_ = std::move(text);
    complaint_detector_ = empty ? detector::kEmptyRow : detector::kPoison;
  }

  /// Tells the mistakes that give a wrong row: `sigma` of its elements, `sigma_lse`.
  void try_mistakes(int64_t row, int head, double got_lse, const std::vector<double>& sigma,
                    double sigma_lse) {
    if (++tried_ > kRowsTried) {
      tried_ = kRowsTried;
      return;
    }
    reference::MergedRow other;
    for (std::size_t i = 0; i < std::size(kMistakes); ++i) {
      std::vector<double> lse = lse_, o = o_;
      kMistakes[i].change(lse);
      // The O of a state that is empty is not read, whichever LSE it has.
      for (std::size_t s = 0; s < lse.size(); ++s) lse[s] = std::isinf(lse_[s]) ? -INFINITY : lse[s];
      reference::merge_states(lse, o, p_.head_dim, other);
      for (int d = 0; d < p_.head_dim; ++d) {
        const double expected = stored_.reachable(other.o[static_cast<std::size_t>(d)]);
        const double most =
            kMaxZ * std::max(sigma[static_cast<std::size_t>(d)], model_.out_roundoff() * std::abs(expected));
        fits_[i].o = fits_[i].o && std::abs(out(row, head, d) - expected) <= most;
      }
      fits_[i].lse =
          fits_[i].lse && (got_lse == other.lse || std::abs(got_lse - other.lse) <= 2 * kMaxZ * sigma_lse);
    }
  }

  void compare(int64_t row, int head, double got_lse) {
    const int dim = p_.head_dim;
    o_.resize(static_cast<std::size_t>(states_ * dim));
    for (int s = 0; s < states_; ++s) {
      value_row({c_.seed, p_.data}, Tensor::kPartialO, static_cast<uint32_t>(s),
                static_cast<uint32_t>(row * p_.num_heads_q + head), 0, dim, values_.data());
      for (int d = 0; d < dim; ++d) {
        o_[static_cast<std::size_t>(s * dim + d)] =
            round_to(p_.type_of_partial(), values_[static_cast<std::size_t>(d)]);
      }
    }
    reference::merge_states(lse_, o_, dim, merged_);
    const double top = *std::ranges::max_element(lse_);
    const double u = unit_roundoff(n_.acc_type);

    double row_z2 = 0, least = 1, most = 0, filled = 0, row_max = 0;
    std::vector<double> sigmas;
    for (int s = 0; s < states_; ++s) {
      if (std::isinf(lse_[static_cast<std::size_t>(s)])) continue;
      ++filled;
      least = std::min(least, merged_.weights[static_cast<std::size_t>(s)]);
      most = std::max(most, merged_.weights[static_cast<std::size_t>(s)]);
    }
    const bool scores_mean = most - least > 0x1p-20;  // equal weights make the mean the right answer
    CommonShares shares;
    for (int d = 0; d < dim; ++d) {
      const double o = stored_.reachable(merged_.o[static_cast<std::size_t>(d)]);
      // A weight has three errors: of the exponential, of its argument, which is rounded twice relative to
      // itself, and of its own rounding. They move O by w (O_s - O). Products and sums round in the
      // accumulator's type, relative to partial sums; so does the sum of the weights, which divides all of O.
      double weights = 0;
      double sums = 0, mean = 0;
      for (int s = 0; s < states_; ++s) {
        const std::size_t at = static_cast<std::size_t>(s);
        if (std::isinf(lse_[at])) continue;
        const double term = merged_.weights[at] * o_[static_cast<std::size_t>(s * dim + d)];
        mean += o_[static_cast<std::size_t>(s * dim + d)] / filled;
        const double argument = 2 * u * (top - lse_[at]);
        const double moved = term - merged_.weights[at] * o;
        const double flushed = 0x1p-126 * o_[static_cast<std::size_t>(s * dim + d)];  // a subnormal weight
        weights += (n_.exp_rel_err * n_.exp_rel_err + argument * argument + u * u) * moved * moved +
                   flushed * flushed / 12;
        sums += term * term;
      }
      const double rounding = model_.out_roundoff() * o;
      const double per_rounding = u * u / 3 * (states_ + 2);
      const double accumulation = per_rounding * (sums + o * o);
      const double quantum = model_.out_quantum();  // spacing of the output type's subnormals
      const double sigma =
          std::sqrt(rounding * rounding / 3 + weights + accumulation + quantum * quantum / 12 + 0x1p-290);
      expect_out(row, head, d, o, sigma);
      const double got = out(row, head, d);
      const double error = got - o;
      const double z = error / sigma;
      const double abs_z = std::isnan(z) ? INFINITY : std::abs(z);
      row_z2 += z * z / dim;
      row_max = std::max(row_max, abs_z);
      sigmas.push_back(sigma);
      shares.logits += weights / (sigma * sigma) / dim;
      shares.denominator += per_rounding * o * o / (sigma * sigma) / dim;
      zeros_.element(o / sigma, 0);
      if (scores_mean)
        mean_.element((static_cast<double>(stored_.rounded(mean)) * stored_.scale - o) / sigma, o / sigma);
      sxx_ += (o / sigma) * (o / sigma);
      sxy_ += (error / sigma) * (o / sigma);
      if (!(abs_z <= v_.max_z)) {
        v_.max_z = abs_z;
        v_.worst = {0, static_cast<int>(row), head, d, got, o, sigma};
      }
      v_.max_abs = larger_error(v_.max_abs, std::abs(error));
      v_.max_ulp = larger_error(v_.max_ulp, std::abs(error) / model_.ulp(o));
      if (std::abs(o) > sigma || std::isnan(got)) v_.max_rel = larger_error(v_.max_rel, std::abs(error / o));
    }
    sum_z2_ += row_z2 * dim;
    elements_ += dim;
    // Errors of the weights and of their sum are common to all channels of a row. w2 = 1 gives the limit for
    // a single error.
    RowMoments few;
    few.w2 = 1.0;
    const double row_limit = model_.row_limit(few, shares), figure = row_z2 / row_limit;
    zeros_.end_row(dim, row_limit);
    if (scores_mean) mean_xy_ += mean_.end_row(dim, row_limit);
    const auto place = [&] { return fmt::format("row {} head {}", row, head); };
    if (!(figure <= v_.max_row_z2)) {
      v_.max_row_z2 = std::isnan(figure) ? INFINITY : figure;
      worst_row_ = place();
    }
    const double log = u * (1 + std::abs(merged_.lse));
    const double converted = p_.lse_base2 ? 0x1p-24 * std::abs(merged_.lse) : 0;  // by download_outputs
    const double sigma_lse = std::sqrt(log * log + n_.exp_rel_err * n_.exp_rel_err + u * u * (states_ + 2) +
                                       converted * converted);
    expect_lse(row, head, merged_.lse, sigma_lse);
    const double lse_z = std::abs(got_lse - merged_.lse) / sigma_lse;
    if (!(lse_z <= kMaxZ)) {
      ++special_.wrong_lse;
      special_.largest_lse += std::abs(got_lse - top) <= kMaxZ * sigma_lse;
    }
    if (!(row_max <= kMaxZ) || !(figure <= 1)) {
      for (int d = 0; d < dim && tried_ < kRowsTried; ++d)
        of_scale_.emplace_back(out(row, head, d) / stored_.scale, merged_.o[static_cast<std::size_t>(d)]);
      try_mistakes(row, head, got_lse, sigmas, sigma_lse);
    }
    if (!(lse_z <= v_.lse_max_z)) {
      v_.lse_max_z = std::isnan(lse_z) ? INFINITY : lse_z;
      worst_lse_ = place();
    }
  }

  const Case& c_;
  const CaseParams& p_;
  const HostOutputs& outputs_;
  const Numerics n_;
  const StoredOut stored_;
  const ErrorModel model_;
  const int64_t rows_;
  int32_t states_ = 0;  ///< of the row in hand
  std::vector<double> lse_, o_;
  std::vector<float> values_;
  reference::MergedRow merged_;
  Verdict v_;
  double sum_z2_ = 0, sxx_ = 0, sxy_ = 0, mean_xy_ = 0;
  MadeUp zeros_, mean_;
  int64_t elements_ = 0;
  struct Fits {
    bool o = true, lse = true;
  };
  Fits fits_[std::size(kMistakes)];  ///< of all rows tried
  int tried_ = 0;
  Special special_;
  std::vector<std::pair<double, double>> of_scale_;  ///< stored numbers of wrong rows, and the right O
  std::string complaint_, complaint_detector_, worst_row_, worst_lse_;
  ExpectedOutputs* expected_;
};

/// Judges all rows, and compares those that `seed` draws. Returns their number.
int64_t take_rows(MergeJudge& judge, const CaseParams& p, CheckMode mode, uint64_t seed) {
  const int64_t items = merge_rows(p) * p.num_heads_q;
  const int64_t elements = items * p.states * p.head_dim;
  const int64_t one_in = mode == CheckMode::kFull ? 1 : elements / kSampledElements + 1;
  std::mt19937_64 draw(seed);
  for (int64_t i = 0; i < items; ++i) {
    judge.take(i / p.num_heads_q, static_cast<int>(i % p.num_heads_q),
               draw() % static_cast<uint64_t>(one_in) == 0);
  }
  return items;
}

}  // namespace

Verdict verify_merge(const Case& c, const HostOutputs& outputs, const Numerics& numerics,
                     const Check& check) {
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t seed = seed_or_drawn(check.rows_seed);
  MergeJudge judge(c, outputs, numerics);
  const int64_t items = take_rows(judge, c.params, check.mode, seed);
  Verdict v = judge.conclude();
  v.rows_total = items;
  v.method = v.rows == items ? "full" : "sampled";
  if (v.method == "sampled") v.rows_seed = seed;
  v.reference_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return v;
}

const JudgeOps ops::merge_states::kJudgeOps = {
    [](const Workload& w, const HostOutputs& outputs, const Numerics& numerics, const Check& check, int) {
      return verify_merge(w.item(), outputs, numerics, check);
    },
    [](const Workload& w, const HostOutputs& got, const Numerics& numerics, const Check& check, int,
       ExpectedOutputs& e) {
      MergeJudge judge(w.item(), got, numerics, &e);
      take_rows(judge, w.item().params, check.mode, check.rows_seed);
    }};

}  // namespace attnbench
