#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <mutex>

#include "harness/cases/cost.h"
#include "harness/cases/seen_keys.h"
#include "harness/judge/attention_totals.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/clues.h"
#include "harness/judge/error_model.h"
#include "harness/judge/keep.h"
#include "harness/judge/made_up.h"
#include "harness/judge/power.h"
#include "harness/judge/row_findings.h"
#include "harness/judge/sample.h"
#include "harness/judge/stored_out.h"
#include "harness/judge/verify.h"

namespace attnbench {
namespace {

const std::vector<unsigned char> kNoneStored;  // CaseInputs' stored_new_k without a launch

/// What stands for a number that is not finite.
std::string finite(double got) {
  return got == -INFINITY  ? "a finite number (-inf is the LSE of a row that sees no key)"
         : std::isnan(got) ? "a finite number (what is not written is NaN)"
                           : "a finite number";
}

/// Compares the LSE of an empty row: exactly -inf, or its sink, which a kernel may have converted to base 2
/// and back.
bool same_lse(double got, double expected) {
  if (!std::isfinite(expected)) return got == expected;
  return std::abs(got - expected) <= 0x1p-22 * (1 + std::abs(expected));
}

/// The number as text; NaN is written without its sign.
std::string number_text(double x) { return std::isnan(x) ? "NaN" : fmt::format("{}", x); }

std::string row_text(int seq, int pos, int head) {
  return fmt::format("seq {} pos {} head {}", seq, pos, head);
}

class Judge {
 public:
  Judge(const Case& c, const HostOutputs& outputs, const CaseInputs& inputs, const ErrorModel& model)
      : p_(c.params),
        seen_(c),
        stored_(c),
        outputs_(outputs),
        inputs_(inputs),
        model_(model),
        sinks_(sinks_of(c)) {
    int64_t begin = 0;
    for (const SeqLen& s : p_.seqs) {
      q_begin_.push_back(begin);
      begin += s.q;
      longest_k_ = std::max(longest_k_, s.k);
    }
    total_q_ = begin;
  }

  double out(int64_t token, int head, int channel) const {
    return stored_.value(outputs_.out, (token * p_.num_heads_q + head) * p_.dim_v() + channel);
  }
  double lse(int64_t token, int head) const {
    return static_cast<double>(outputs_.lse[static_cast<std::size_t>(head * total_q_ + token)]);
  }

  /// Scans every element of every row, compared or not. Elements must be finite; rows without a visible key
  /// must be empty. Reports the first wrong row of each kind.
  void scan_all(Verdict& v) const {
    std::optional<std::string> poison, not_empty;
    const int group = p_.num_heads_q / p_.num_heads_kv;
    for (std::size_t b = 0; b < p_.seqs.size(); ++b) {
      for (int i = 0; i < p_.seqs[b].q; ++i) {
        for (int h = 0; h < p_.num_heads_q; ++h) {
          const bool empty = seen_.count(b, i, h / group) == 0;
          std::optional<std::string>& found = empty ? not_empty : poison;
          if (!found) found = wrong_row(static_cast<int>(b), i, h, empty);
        }
      }
    }
    if (poison) v.fail(detector::kPoison, *poison);
    if (not_empty) v.fail(detector::kEmptyRow, *not_empty);
  }

  void take(const reference::RowBlock& block) {
    AttentionTotals t;
    const int d = p_.dim_v();
    for (std::size_t r = 0; r < block.rows.size(); ++r) {
      const reference::RowId id = block.rows[r];
      const int64_t token = q_begin_[static_cast<std::size_t>(id.seq)] + id.pos;
      ++t.v.rows;
      const RowMoments m = moments_of(block, r, inputs_);
      if (m.keys == 0) continue;  // scan_all judges empty rows exactly
      double row_z2 = 0, row_z = 0;
      double xx = 0, xy = 0,
             spread = 0;  // spread: mean square of (v - o) / sigma over the row's keys, summed
      CommonShares shares;
      const std::optional<std::size_t> tilt_at = tilt_of(block, r);
      const double* tilt = tilt_at ? block.tilt.data() + *tilt_at * static_cast<std::size_t>(d) : nullptr;
      // Equal weights make the mean the right answer. One row that rejects it is enough.
      const bool scores_mean = std::abs(m.w2 * static_cast<double>(m.keys) - 1) > 0x1p-20 && !mean_rejected_;
      for (int c = 0; c < d; ++c) {
        const std::size_t at = r * static_cast<std::size_t>(d) + static_cast<std::size_t>(c);
        const double o = stored_.reachable(block.o[at]);
        const double got = out(token, id.head, c);
        double sigma = model_.sigma(m, o, block.a2[at], block.v2[at], block.vv[at]);
        if (!outputs_.extra_variance.empty()) {
          const auto i = static_cast<std::size_t>((token * p_.num_heads_q + id.head) * d + c);
          sigma = std::sqrt(sigma * sigma + outputs_.extra_variance[i]);
        }
        const double error = got - o;
        const double z = error / sigma;
        const double abs_z = std::isnan(z) ? INFINITY : std::abs(z);
        row_z2 += z * z;
        row_z = std::max(row_z, abs_z);
        shares.logits += model_.logit_variance(m, block.a2[at], block.v2[at]) / (sigma * sigma * d);
        shares.denominator += model_.denominator_variance(m, o) / (sigma * sigma * d);
        xx += (o / sigma) * (o / sigma);
        xy += z * (o / sigma);
        t.zeros.element(o / sigma, 0);
        const double free = o == block.o[at] ? 1 / sigma : 0;  // O that saturates does not move
        t.power.o_scale.element(z, o * free, o / sigma);
        if (tilt) t.power.softmax_scale.element(z, tilt[c] * free, o / sigma);
        spread += spread_of_values(block, at, m) * free * free;
        if (scores_mean) {
          const double stored = static_cast<double>(stored_.rounded(block.mean[at])) * stored_.scale;
          t.mean.element((stored - o) / sigma, o / sigma);
        }
        if (abs_z > t.worst_abs_z) {
          t.worst_abs_z = abs_z;
          t.v.worst = {id.seq, id.pos, id.head, c, got, o, sigma};
        }
        t.v.max_abs = larger_error(t.v.max_abs, std::abs(error));
        t.v.max_ulp = larger_error(t.v.max_ulp, std::abs(error) / model_.ulp(o));
        if (std::abs(o) > sigma || std::isnan(got))
          t.v.max_rel = larger_error(t.v.max_rel, std::abs(error / o));
      }
      // The row's slope xy / xx has the variance 1 / xx + common; its weight in the case's slope is the
      // inverse of that.
      const double row_weight = 1.0 / (1.0 + xx * model_.common_variance(m));
      const double limit = (few_numbers_ ? 2 : 1) * model_.row_limit(m, shares);
      if (m.w2 > 0) t.zeros.end_row(d, limit);  // without a weight left, zeros are the right answer
      const double mean_xy = scores_mean ? t.mean.end_row(d, limit) : 0;
      if (t.mean.rejected()) mean_rejected_ = true;
      if (has_one_key(m)) {
        const double* o = block.o.data() + r * static_cast<std::size_t>(d);
        t.one_key.insert({digest_of(o), {row_weight * xx, row_weight * xy, row_weight * mean_xy}});
      } else {
        t.sxx += row_weight * xx;
        t.sxy += row_weight * xy;
        t.mean_xy += row_weight * mean_xy;
      }
      t.sum_z2 += row_z2;
      t.elements += d;
      AttentionTotals::note(t.worst_row, {id.seq, id.pos, id.head, row_z2 / d, limit});
      if (p_.probs) take_probs(t, block, r, token, m);
      const double lse_seen = outputs_.no_lse ? INFINITY : take_lse(t, id, token, m, row_z);
      t.wrong_rows += !(row_z <= kMaxZ && row_z2 / d <= limit);
      t.power.end_row(d, limit, has_one_key(m) ? 0 : row_weight,
                      tilt ? lse_seen / std::abs(block.tilt_lse[*tilt_at]) : INFINITY);
      if (m.keys > 1) t.power.drop_key(least_by_row(limit, row_z2 / d, spread / d, d), lse_seen);
    }
    const std::lock_guard lock(mutex_);
    totals_.add(t);
  }

  /// The verdict on all rows that were taken.
  Verdict conclude() {
    Verdict v = totals_.v;
    v.max_z = std::max(0.0, totals_.worst_abs_z);
    v.rms_z = totals_.elements > 0 ? std::sqrt(totals_.sum_z2 / static_cast<double>(totals_.elements)) : 0;
    if (totals_.worst_row) v.max_row_z2 = totals_.worst_row->figure / totals_.worst_row->limit;
    if (totals_.worst_lse) v.lse_max_z = totals_.worst_lse->figure;
    if (totals_.worst_p) v.probs_max_z = totals_.worst_p->z;
    double mean_slope = 0, of_one_key = 0;
    const double bias_limit = find_slope(v, mean_slope, of_one_key);
    if (totals_.zeros.accepted(-1, bias_limit)) v.accepts.emplace_back(made_up::kZeros);
    if (totals_.mean.accepted(mean_slope, bias_limit)) v.accepts.emplace_back(made_up::kMeanOfValues);
    v.pass = true;
    scan_all(v);
    if (!(v.max_z <= kMaxZ)) {
      const WorstElement& w = v.worst;
      v.fail(detector::kMaxZ,
             fmt::format("O of {} channel {}: got {:.9g}, expected {:.9g}, |z| = {:.3g} > {}",
                         row_text(w.seq, w.pos, w.head), w.channel, w.got, w.expected, v.max_z, kMaxZ));
    }
    if (totals_.worst_row && !(v.max_row_z2 <= 1.0)) {
      const auto& w = *totals_.worst_row;
      v.fail(detector::kRowZ2, fmt::format("O of {}: mean z^2 over its channels = {:.3g} > {:.3g}",
                                           row_text(w.seq, w.pos, w.head), w.figure, w.limit));
    }
    if (!(v.lse_max_z <= kMaxZ)) {
      const auto& w = *totals_.worst_lse;
      const int64_t token = q_begin_[static_cast<std::size_t>(w.seq)] + w.pos;
      v.fail(detector::kLse,
             fmt::format("LSE of {}: got {:.9g}, expected {:.9g}, |z| = {:.3g} > {}",
                         row_text(w.seq, w.pos, w.head), lse(token, w.head), w.expected, w.figure, kMaxZ));
    }
    if (!(v.probs_max_z <= kMaxZ)) {
      const auto& w = *totals_.worst_p;
      v.fail(detector::kProbs,
             fmt::format("probability of {} key {}: got {:.9g}, expected {:.9g}, |z| = {:.3g} > {}",
                         row_text(w.seq, w.pos, w.head), w.key, w.got, w.expected, w.z, kMaxZ));
    }
    if (!(std::abs(v.slope) <= bias_limit)) {
      v.fail(detector::kBias, bias_text("O", v.slope, v.bias_se, bias_limit));
    }
    if (totals_.wrong_rows > 0)
      v.clues = {fmt::format("{} of {} {}", totals_.wrong_rows, v.rows, kOfCompared)};
    if (v.pass && totals_.elements > 0) {
      const double left = bias_limit + std::abs(v.slope);
      v.power = totals_.power.power(left, 1 - of_one_key);
    }
    return v;
  }

 private:
  /// Whether one key carries the row. Its output is then that key's value with the same roundings as in every
  /// other row that the key carries.
  static bool has_one_key(const RowMoments& m) { return m.w2 > 1.0 - 0x1p-7; }

  /// Mean of (v - o)^2 over the row's keys, in one channel, less what the mean's float32 digits leave open.
  static double spread_of_values(const reference::RowBlock& block, std::size_t at, const RowMoments& m) {
    const double o = block.o[at], mean_v2 = block.vv[at] / static_cast<double>(m.keys);
    return std::max(0.0, (1 - 1e-4) * mean_v2 - 2 * o * block.mean[at] + o * o);
  }

  /// Sets slope and bias_se, the slope of the mean of the values, the share that rows of one key have in them, and returns
  /// the limit of |slope|.
  double find_slope(Verdict& v, double& mean_slope, double& of_one_key) const {
    double sxx = totals_.sxx, sxy = totals_.sxy, mean_xy = totals_.mean_xy;
    for (const auto& [digest, row] : totals_.one_key) {
      sxx += row.xx;
      sxy += row.xy;
      mean_xy += row.mean_xy;
      of_one_key += row.xx;
    }
    if (!(sxx > 0)) return INFINITY;
    of_one_key /= sxx;
    mean_slope = mean_xy / sxx;
    v.slope = sxy / sxx;
    v.bias_se = std::abs(v.slope) * std::sqrt(sxx);
    const int roundings = outputs_.extra_variance.empty() ? 1 : 2;  // of O, and of merged states
    double limit =
        kMaxBiasSe / std::sqrt(sxx) + roundings * kBiasFloor + model_.rounding_bias() + model_.mma_bias();
    // Dropout, a sink or a scale of O multiplies stored numbers by one factor. Such products round in a
    // pattern: a factor of 1.002 leaves most numbers unchanged.
    const bool factor = p_.dropout > 0 || p_.sinks || p_.e4m3_out;
    limit += of_one_key * model_.out_roundoff() / (factor ? 2 : 8);
    if (few_numbers_) limit += model_.out_roundoff();
    // A softcap below the spread of the scores saturates them: few different weights remain, whose roundings are
    // not independent.
    const double spread = softmax_scale_of(p_) * std::sqrt(p_.head_dim);
    if (p_.softcap > 0 && p_.softcap <= spread) limit += model_.p_roundoff() / 3;
    return limit;
  }

  /// A digest that is equal for rows whose outputs round to the same numbers.
  uint64_t digest_of(const double* o) const {
    uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a
    for (int c = 0; c < p_.dim_v(); ++c) {
      const float rounded = stored_.rounded(o[c]);
      digest = (digest ^ std::bit_cast<uint32_t>(rounded)) * 0x100000001b3u;
    }
    return digest;
  }

  /// Whether O holds only finite numbers there. Reads bits, because a case has millions of elements; false if
  /// the type has no infinity.
  bool finite_row(int64_t token, int h) const {
    const auto no_exponent_is = [&](auto all_ones) {
      using Bits = decltype(all_ones);
      const auto d = static_cast<std::size_t>(p_.dim_v());
      const auto* row = reinterpret_cast<const Bits*>(outputs_.out.data()) +
                        static_cast<std::size_t>(token * p_.num_heads_q + h) * d;
      Bits found = 0;
      for (std::size_t c = 0; c < d; ++c) found |= static_cast<Bits>((row[c] & all_ones) == all_ones);
      return found == 0;
    };
    switch (stored_.type) {
      case DType::kE4m3:  // NaN alone
        return no_exponent_is(uint8_t{0x7f});
      case DType::kBf16:
        return no_exponent_is(uint16_t{0x7f80});
      case DType::kFp16:
        return no_exponent_is(uint16_t{0x7c00});
      case DType::kFp32:
        return no_exponent_is(uint32_t{0x7f800000});
      default:
        return false;
    }
  }

  std::optional<std::string> wrong_row(int seq, int i, int h, bool empty) const {
    const int64_t token = q_begin_[static_cast<std::size_t>(seq)] + i;
    const double of_empty = sinks_.empty() ? -INFINITY : sinks_[static_cast<std::size_t>(h)];
    const double l = outputs_.no_lse ? (empty ? of_empty : 0) : lse(token, h);
    if (empty ? !same_lse(l, of_empty) : !std::isfinite(l)) {
      const auto written = [this](double x) { return outputs_.inf_empty_lse && std::isinf(x) ? -x : x; };
      return fmt::format(
          "LSE of {} is {}, expected {}", row_text(seq, i, h), number_text(written(l)),
          empty ? fmt::format("{} (the row sees no key)", written(of_empty)) : finite(written(l)));
    }
    const bool looks_right = !empty && finite_row(token, h);
    for (int c = 0; c < p_.dim_v() && !looks_right; ++c) {
      const double o = out(token, h, c);
      if (empty ? !(o == 0) : !std::isfinite(o)) {
        return fmt::format("O of {} channel {} is {}, expected {}", row_text(seq, i, h), c, number_text(o),
                           empty ? "0 (the row sees no key)" : finite(o));
      }
    }
    if (!p_.probs) return std::nullopt;
    const int kv_head = h / (p_.num_heads_q / p_.num_heads_kv);
    for (int key = 0; key < longest_k_; ++key) {
      const auto p = static_cast<double>(probs(token, h)[key]);
      const bool seen = seen_.sees(static_cast<std::size_t>(seq), i, kv_head, key);
      if (seen ? !std::isfinite(p) : !(p == 0)) {
        return fmt::format("probability of {} key {} is {}, expected {}", row_text(seq, i, h), key,
                           number_text(p), seen ? finite(p) : "0 (the row does not see the key)");
      }
    }
    return std::nullopt;
  }

  /// Judges the LSE of a row, whose largest z is `row_z`. Returns the change of it that would have been seen.
  double take_lse(AttentionTotals& t, const reference::RowId& id, int64_t token, const RowMoments& m,
                  double& row_z) const {
    const double converted = p_.lse_base2 ? 0x1p-24 * std::abs(m.lse) : 0;  // by download_outputs
    const double sigma = std::hypot(model_.sigma_lse(m), converted);
    const double z = std::abs(lse(token, id.head) - m.lse) / sigma;
    AttentionTotals::note(t.worst_lse, {id.seq, id.pos, id.head, z, kMaxZ, m.lse});
    row_z = std::isnan(z) ? INFINITY : std::max(row_z, z);
    return (kMaxZ + z) * sigma;
  }

  /// Where the block has the derivatives of row r by softmax_scale.
  static std::optional<std::size_t> tilt_of(const reference::RowBlock& block, std::size_t r) {
    const std::size_t from_last = block.rows.size() - 1 - r;
    if (from_last % reference::kTiltStep != 0 || block.tilt.empty()) return std::nullopt;
    return from_last / reference::kTiltStep;
  }

  /// Judges the probabilities of row r of the block. scan_all judges those that must be 0.
  void take_probs(AttentionTotals& t, const reference::RowBlock& block, std::size_t r, int64_t token,
                  const RowMoments& m) const {
    const reference::RowId id = block.rows[r];
    const float* got = probs(token, id.head);
    const double* expected = block.probs.data() + r * static_cast<std::size_t>(block.key_count);
    for (int64_t j = 0; j < block.key_count; ++j) {
      const auto key = static_cast<int>(block.key_begin + j);
      const double z = std::abs(static_cast<double>(got[key]) - expected[j]) / model_.sigma_p(m, expected[j]);
      const double figure = std::isnan(z) ? INFINITY : z;
      if (!t.worst_p || figure > t.worst_p->z) {
        t.worst_p = {id.seq, id.pos, id.head, key, got[key], expected[j], figure};
      }
    }
  }

  const float* probs(int64_t token, int head) const {
    return outputs_.probs.data() + (head * total_q_ + token) * longest_k_;
  }

  const CaseParams& p_;
  const SeenKeys seen_;
  const StoredOut stored_;
  const HostOutputs& outputs_;
  const CaseInputs& inputs_;
  const ErrorModel& model_;
  /// V that is a view of huge keys holds constants with different signs, which round alike in all channels. So do rows of
  /// the largest numbers.
  const bool few_numbers_ = (p_.v_is_k_view && p_.data == Profile::kHuge) || p_.data == Profile::kCorners;
  std::vector<float> sinks_;
  std::vector<int64_t> q_begin_;
  int64_t total_q_ = 0;
  int32_t longest_k_ = 0;
  std::atomic<bool> mean_rejected_ = false;
  std::mutex mutex_;
  AttentionTotals totals_;
};

/// Computes the reference's rows that are compared, and passes them to `sink`.
void compute_rows(const Case& c, const CaseInputs& inputs, const Check& check, int num_threads,
                  const reference::RowSink& sink) {
  const reference::Problem problem = problem_of(c);
  reference::attend(problem, inputs, rows_to_compare(c, problem, check), num_threads, sink);
}

Verdict concluded(const Case& c, Judge& judge) {
  Verdict v = judge.conclude();
  v.rows_total = cost_of(c).total_q * c.params.num_heads_q;
  v.method = v.rows == v.rows_total ? "full" : "sampled";
  return v;
}

}  // namespace

Verdict verify_attention(const Case& c, const HostOutputs& outputs, const Numerics& numerics,
                         const Check& check, int num_threads) {
  const Check drawn(check.mode, seed_or_drawn(check.rows_seed));
  const auto begin = std::chrono::steady_clock::now();
  const ErrorModel model = error_model_of(c, numerics);
  const CaseInputs inputs(c, outputs.new_k, &outputs.new_v);
  Judge judge(c, outputs, inputs, model);
  compute_rows(c, inputs, drawn, num_threads, [&](const reference::RowBlock& block) { judge.take(block); });
  Verdict v = concluded(c, judge);
  if (v.method == "sampled") v.rows_seed = drawn.rows_seed;
  v.reference_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return v;
}

struct StoredReference::Rows {
  Case item;
  std::mutex mutex;
  Keep keep;
  std::vector<reference::RowBlock> blocks;
};

StoredReference::StoredReference(const Case& c, CheckMode mode, int num_threads)
    : rows_(std::make_unique<Rows>()) {
  rows_->item = c;
  compute_rows(
      c, CaseInputs(c, kNoneStored), {mode, c.seed}, num_threads, [this](const reference::RowBlock& b) {
        const std::lock_guard lock(rows_->mutex);
        Keep& keep = rows_->keep;
        rows_->blocks.push_back({keep(b.rows), keep(b.o), keep(b.a2), keep(b.v2), keep(b.vv), keep(b.mean),
                                 keep(b.lse), keep(b.w2), keep(b.w4), keep(b.p_max), keep(b.score_abs),
                                 keep(b.dot_norm), keep(b.keys), keep(b.probs), b.key_begin, b.key_count});
      });
}

StoredReference::~StoredReference() = default;

Verdict StoredReference::judge(const HostOutputs& outputs, const Numerics& numerics) const {
  const ErrorModel model = error_model_of(rows_->item, numerics);
  const CaseInputs inputs(rows_->item, kNoneStored);
  Judge judge(rows_->item, outputs, inputs, model);
  for (const reference::RowBlock& b : rows_->blocks) judge.take(b);
  return concluded(rows_->item, judge);
}

}  // namespace attnbench
