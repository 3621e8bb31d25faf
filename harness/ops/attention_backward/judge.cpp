// Judges attention_backward: rows of dq, dk and dv, and dsinks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <span>
#include <tuple>

#include "harness/cases/visible_keys.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/keep.h"
#include "harness/judge/made_up.h"
#include "harness/judge/sample.h"
#include "harness/judge/verify.h"
#include "harness/ops/attention_backward/judge_gradients.h"
#include "harness/ops/attention_backward/judge_mistakes.h"
#include "harness/ops/attention_backward/judge_model.h"

namespace attnbench {
namespace {

/// A row as the reference gives it.
struct ExpectedRow {
  GradPlace place;
  const double* value;
  const double* variance;
  const double* projection;  ///< null: none
  RowErrors common;
  int64_t terms;
  double few;
  const double* heads = nullptr;  ///< null: none
};

class BackwardJudge {
 public:
  BackwardJudge(const Case& c, const HostOutputs& outputs, const BackwardModel& model)
      : case_(c), p_(c.params), outputs_(outputs), model_(model), sinks_(sinks_of(c)) {
    std::vector<int64_t> q{0}, k{0};
    for (const SeqLen& s : p_.seqs) {
      q.push_back(q.back() + s.q);
      k.push_back(k.back() + s.k);
    }
    dq_ = {Grad::kDq, "dq", &outputs.dq, p_.dtype, p_.num_heads_q, p_.head_dim, q};
    dk_ = {Grad::kDk, "dk", &outputs.dk, p_.dtype, p_.num_heads_kv, p_.head_dim, k};
    dv_ = {Grad::kDv, "dv", &outputs.dv, p_.dtype, p_.num_heads_kv, p_.dim_v(), k};
    sink_sum_.resize(sinks_.size());
    sink_by_seq_.resize(sinks_.size() * p_.seqs.size());
    chi_[0] = std::max(2.0, chi_square_mean_limit(p_.head_dim));
    chi_[1] = std::max(2.0, chi_square_mean_limit(p_.dim_v()));
  }

  void take(const reference::QueryGrads& g) {
    GradTotals t;
    for (std::size_t r = 0; r < g.rows.size(); ++r) {
      const auto [seq, pos, head] = g.rows[r];
      ++t.rows;
      if (g.facts[r].keys == 0) continue;  // scan_all judges it exactly
      const std::size_t first = r * slot(p_.head_dim);
      take_row(dq_, chi_[0],
               {{seq, pos, head},
                &g.dq[first],
                &g.variance[first],
                &g.projection[first],
                model_.row_errors(g.facts[r]),
                g.facts[r].keys,
                g.few[r]},
               t);
    }
    const std::lock_guard lock(mutex_);
    totals_[0].add(t);
  }

  void take(const reference::KeyGrads& g) {
    GradTotals dk, dv;
    for (std::size_t r = 0; r < g.keys.size(); ++r) {
      const auto [seq, pos, head] = g.keys[r];
      ++dk.rows;
      ++dv.rows;
      if (g.rows[r] == 0) continue;
      const std::size_t k = r * slot(p_.head_dim), v = r * slot(p_.dim_v());
      take_row(dk_, chi_[0],
               {{seq, pos, head},
                &g.dk[k],
                &g.dk_variance[k],
                nullptr,
                {},
                g.rows[r],
                g.dk_few[r],
                &g.dk_heads[k]},
               dk);
      take_row(dv_, chi_[1],
               {{seq, pos, head},
                &g.dv[v],
                &g.dv_variance[v],
                nullptr,
                {},
                g.rows[r],
                g.dv_few[r],
                &g.dv_heads[v]},
               dv);
    }
    const std::lock_guard lock(mutex_);
    totals_[1].add(dk);
    totals_[2].add(dv);
  }

  void take_facts(std::span<const reference::RowId> rows, std::span<const reference::RowFacts> facts) {
    if (sinks_.empty()) return;
    const std::lock_guard lock(mutex_);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::size_t head = slot(rows[r].head);
      const double before = sink_sum_[head].value;
      sink_sum_[head].add(model_, facts[r], sinks_[head]);
      sink_by_seq_[slot(rows[r].seq) * sinks_.size() + head] += sink_sum_[head].value - before;
    }
  }

  Verdict conclude() {
    Verdict v;
    v.pass = true;
    scan_all(v);
    const Gradient* gradients[] = {&dq_, &dk_, &dv_};
    double sum_z2 = 0, worst_bias = -1;
    int64_t elements = 0;
    bool accepts_zeros = v.pass;
    for (int i = 0; i < 3; ++i) {
      const GradTotals& t = totals_[i];
      v.rows += i < 2 ? t.rows : 0;  // rows of dk and dv are those of the same keys
      sum_z2 += t.sum_z2;
      elements += t.elements;
      v.max_abs = larger_error(v.max_abs, t.max_abs);
      v.max_rel = larger_error(v.max_rel, t.max_rel);
      v.max_ulp = larger_error(v.max_ulp, t.max_ulp);
      v.max_row_z2 = std::max(v.max_row_z2, t.worst_row);
      if (t.max_z > v.max_z) {
        v.max_z = t.max_z;
        v.worst = t.worst;
      }
      judge(*gradients[i], t, v);
      const double bias_limit = judge_bias(*gradients[i], t, worst_bias, v);
      accepts_zeros = accepts_zeros && (t.elements == 0 || t.zeros.accepted(-1, bias_limit));
    }
    judge_sinks(v);
    if (accepts_zeros && elements > 0) v.accepts.emplace_back(made_up::kZeros);
    add_clues(v);
    v.rms_z = elements > 0 ? std::sqrt(sum_z2 / static_cast<double>(elements)) : 0;
    v.rows_total = dq_.begin.back() * p_.num_heads_q + dk_.begin.back() * p_.num_heads_kv;
    v.method = v.rows == v.rows_total ? "full" : "sampled";
    return v;
  }

 private:
  void take_row(const Gradient& g, double chi, const ExpectedRow& e, GradTotals& t) const {
    double row_z2 = 0, rounding = 0, common = 0, xx = 0, xy = 0, along = 0, pairs = 0, length2 = 0,
           row_max = 0;
    for (int c = 0; c < g.dim; ++c) {
      GradTerms terms{e.value[c], e.variance[c], e.projection ? e.projection[c] : 0.0,
                      e.common,   e.terms,       e.heads ? e.heads[c] : 0.0};
      const double sigma2 = model_.variance(terms), sigma = std::sqrt(sigma2);
      const double got = g.get(e.place, c), error = got - terms.value, z = error / sigma;
      const double abs_z = std::isnan(z) ? INFINITY : std::abs(z);
      row_z2 += z * z;
      row_max = std::max(row_max, abs_z);
      rounding += model_.rounding(terms) / sigma2;
      common += model_.common(terms) / sigma2;
      xx += terms.value * terms.value / sigma2;
      t.zeros.element(terms.value / sigma, 0);
      xy += error * terms.value / sigma2;
      along += terms.projection * terms.value / sigma2;
      pairs += terms.pairs;
      length2 += terms.value * terms.value;
      if (abs_z > t.max_z) {
        t.max_z = abs_z;
        t.worst = {e.place.seq, e.place.pos, e.place.head, c, got, terms.value, sigma};
      }
      t.max_abs = larger_error(t.max_abs, std::abs(error));
      if (!(std::abs(terms.value) > sigma) && !std::isnan(error))
        continue;  // dS sums to 0: some gradients are what roundings leave
      t.max_ulp = larger_error(t.max_ulp, std::abs(error) / model_.ulp(terms.value));
      t.max_rel = larger_error(t.max_rel, std::abs(error / terms.value));
    }
    rounding /= g.dim;
    common /= g.dim;
    t.sum_z2 += row_z2;
    t.elements += g.dim;
    // Errors of few pairs, and those of the row's delta and LSE, are common to all channels.
    const double few = std::clamp(e.few, 1e-6, 1.0);
    static const double single = chi_square_mean_limit(1);
    const double of_pairs = std::max(0.0, 1 - rounding - common);
    const double limit =
        rounding * chi + of_pairs * std::max(chi, chi_square_mean_limit(1 / few)) + common * single;
    const double figure = row_z2 / g.dim / limit;
    t.zeros.end_row(g.dim, limit);
    const bool wrong = !(figure <= 1.0) || !(row_max <= kMaxZ);
    t.seen.push_back({g.of, e.place.seq, e.place.pos, e.place.head, wrong});
    if (wrong) {
      ++t.wrong_rows;
      t.nan_rows += std::isnan(row_z2);
      t.wrong_xx += xx;
      t.wrong_xy += xy;
      t.wrong_yy += row_z2;
    }
    if (!(figure <= t.worst_row)) {
      t.worst_row = std::isnan(figure) ? INFINITY : figure;
      t.worst_z2 = row_z2 / g.dim;
      t.worst_limit = limit;
      t.worst_row_place = e.place;
    }
    // The row's slope has the variance 1 / xx and that of the errors that are a multiple of the row.
    if (!(xx > 0)) return;
    const double multiple = e.common.lse + e.common.delta * (along / xx) * (along / xx) +
                            (length2 > 0 ? e.few * pairs / length2 : 0);
    const double weight = 1.0 / (1.0 + xx * multiple);
    t.sxx += weight * xx;
    t.sxy += weight * xy;
    if (e.few > 1.0 - 0x1p-7) t.of_one_pair += weight * xx;
  }

  void judge(const Gradient& g, const GradTotals& t, Verdict& v) const {
    if (t.elements == 0) return;
    if (!(t.max_z <= kMaxZ)) {
      const WorstElement& w = t.worst;
      v.fail(detector::kMaxZ,
             fmt::format("{} channel {}: got {:.9g}, expected {:.9g}, |z| = {:.3g} > {}",
                         g.text({w.seq, w.pos, w.head}), w.channel, w.got, w.expected, t.max_z, kMaxZ));
    }
    if (!(t.worst_row <= 1.0)) {
      v.fail(detector::kRowZ2, fmt::format("{}: mean z^2 over its channels = {:.3g} > {:.3g}",
                                           g.text(t.worst_row_place), t.worst_z2, t.worst_limit));
    }
  }

  /// Returns the limit of |slope|.
  double judge_bias(const Gradient& g, const GradTotals& t, double& worst, Verdict& v) const {
    if (!(t.sxx > 0)) return INFINITY;
    const double slope = t.sxy / t.sxx, se = std::abs(slope) * std::sqrt(t.sxx);
    double limit = kMaxBiasSe / std::sqrt(t.sxx) + kBiasFloor;
    // One factor on stored numbers rounds in a pattern, as for the forward pass.
    const bool factor = p_.dropout > 0 || p_.sinks;
    const double stored = std::max(model_.out_roundoff(), model_.p_roundoff());
    limit += t.of_one_pair / t.sxx * stored / (factor ? 2 : 8);
    if (p_.softcap > 0 && p_.softcap <= 1) limit += model_.p_roundoff() / 3;
    const double figure = std::abs(slope) / limit;
    if (!(figure <= worst)) {
      worst = figure;
      v.slope = slope;
      v.bias_se = se;
    }
    if (!(std::abs(slope) <= limit)) v.fail(detector::kBias, bias_text(g.name, slope, se, limit));
    return limit;
  }

  /// Which gradients are wrong narrows the cause down, and so does a factor of all their rows.
  void add_clues(Verdict& v) const {
    const GradTotals &dq = totals_[0], &dk = totals_[1], &dv = totals_[2];
    const bool q = dq.wrong_rows > 0, k = dk.wrong_rows > 0, value = dv.wrong_rows > 0;
    if (!q && !k && !value) return factor_clue(v);
    if (q && !k && !value && dq.nan_rows == dq.wrong_rows)
      v.clues.emplace_back(
          "dq alone is NaN: perhaps it is added to what was there before, which holds NaN; set it to 0 first");
    const char* hint = q && k && value ? "P is wrong: a scale, a mask, a bias, the LSE"
                       : q && k        ? "dS is wrong and P right: delta, dP, or the softcap's derivative"
                       : k && value
                           ? "sums over the queries are wrong: heads of a group, rows left out or read twice"
                       : q ? "dS is right: the sum over the keys, or the scale of dq"
                       : k ? "dS is right: the sum over the queries, or the scale of dk"
                           : "P is right in dS: the weights of dO, dropout in them, or their sum";
    v.clues.push_back(fmt::format("wrong rows: {} of {} in dq, {} of {} in dk, {} of {} in dv: perhaps {}",
                                  dq.wrong_rows, dq.rows, dk.wrong_rows, dk.rows, dv.wrong_rows, dv.rows,
                                  hint));
    const Gradient* gradients[] = {&dq_, &dk_, &dv_};
    std::vector<GradRow> rows;
    for (const GradTotals& t : totals_) rows.insert(rows.end(), t.seen.begin(), t.seen.end());
    std::ranges::sort(rows, {}, [](const GradRow& r) { return std::tuple(r.of, r.seq, r.pos, r.head); });
    const auto got = [&](const GradRow& r, int channel) {
      return gradients[static_cast<int>(r.of)]->get({r.seq, r.pos, r.head}, channel);
    };
    const auto named = grad_clues(case_, rows, got, std::max(model_.out_roundoff(), model_.p_roundoff()), 0);
    v.clues.insert(v.clues.end(), named.begin(), named.end());
    for (int i = 0; i < 3 && named.empty(); ++i) {
      const GradTotals& t = totals_[i];
      const double multiple = t.wrong_xy / t.wrong_xx;
      // Most of the error is a multiple of the gradient itself.
      if (!(t.wrong_rows > 1 && t.wrong_xy * multiple > 0.98 * t.wrong_yy)) continue;
      v.clues.push_back(fmt::format("looks like: {} is right but for a factor of {:.4g}", gradients[i]->name,
                                    1 + multiple));
    }
  }

  /// All rows are within their limits, and all of a gradient off by a little.
  void factor_clue(Verdict& v) const {
    const Gradient* gradients[] = {&dq_, &dk_, &dv_};
    for (int i = 0; i < 3; ++i) {
      const GradTotals& t = totals_[i];
      if (v.pass || !(std::abs(t.sxy) > kMaxBiasSe * std::sqrt(t.sxx))) continue;
      v.clues.push_back(
          fmt::format("perhaps {} has a factor of {:.4g}: a constant with few digits, or truncation",
                      gradients[i]->name, 1 + t.sxy / t.sxx));
    }
  }

  void judge_sinks(Verdict& v) const {
    for (std::size_t h = 0; h < sink_sum_.size(); ++h) {
      const auto got = static_cast<double>(outputs_.dsinks[h]);
      if (!std::isfinite(got)) {
        v.fail(detector::kPoison, fmt::format("dsinks of head {} is {}, expected a finite number", h, got));
        return;
      }
      const SinkSum& s = sink_sum_[h];
      if (s.rows != dq_.begin.back()) continue;  // a sample has not all queries of the head
      const double z = std::abs(got - s.value) / s.sigma(model_);
      if (z <= kMaxZ) continue;
      v.fail(detector::kDsinks,
             fmt::format("dsinks of head {}: got {:.9g}, expected {:.9g}, |z| = {:.3g} > {}", h, got, s.value,
                         z, kMaxZ));
      const std::string clue = sink_clue(outputs_.dsinks, sink_by_seq_);
      if (!clue.empty()) v.clues.push_back(clue);
      return;
    }
  }

  /// Scans every element, compared or not: it must be finite, and 0 in a row that has no visible pair.
  void scan_all(Verdict& v) const {
    std::optional<std::string> poison, not_zero;
    const auto scan = [&](const Gradient& g, const GradPlace& p, bool empty, const char* why) {
      std::optional<std::string>& found = empty ? not_zero : poison;
      for (int c = 0; c < g.dim && !found; ++c) {
        const double x = g.get(p, c);
        if (empty ? x == 0 : std::isfinite(x)) continue;
        found = fmt::format("{} channel {} is {}, expected {}", g.text(p), c,
                            std::isnan(x) ? "NaN" : fmt::format("{}", x),
                            empty ? why : "a finite number (what is not written is NaN)");
      }
    };
    for (std::size_t b = 0; b < p_.seqs.size(); ++b) {
      const SeqLen& s = p_.seqs[b];
      for (int i = 0; i < s.q; ++i) {
        const bool empty = visible_keys(mask_of(p_), s.q, s.k, i).empty();
        for (int h = 0; h < p_.num_heads_q; ++h)
          scan(dq_, {static_cast<int>(b), i, h}, empty, "0 (the query sees no key)");
      }
      const KeyRange seen = visible_keys_union(mask_of(p_), s.q, s.k);
      for (int j = 0; j < s.k; ++j) {
        for (int h = 0; h < p_.num_heads_kv; ++h) {
          for (const Gradient* g : {&dk_, &dv_})
            scan(*g, {static_cast<int>(b), j, h}, !seen.contains(j), "0 (no query sees the key)");
        }
      }
    }
    if (poison) v.fail(detector::kPoison, *poison);
    if (not_zero) v.fail(detector::kEmptyRow, *not_zero);
    if (not_zero)
      v.clues.push_back(
          not_zero->find("is NaN") != std::string::npos
              ? "rows that must be 0, because they have no visible pair, are NaN: perhaps not written"
              : "rows that must be 0, because they have no visible pair, are not: perhaps masked pairs "
                "have a weight");
  }

  const Case& case_;
  const CaseParams& p_;
  const HostOutputs& outputs_;
  const BackwardModel& model_;
  std::vector<float> sinks_;
  Gradient dq_, dk_, dv_;
  double chi_[2];
  std::mutex mutex_;
  GradTotals totals_[3];  ///< of dq, dk and dv
  std::vector<SinkSum> sink_sum_;
  std::vector<double> sink_by_seq_;  ///< (B, Hq)
};

void compute_gradients(const Case& c, const BackwardModel& model, const Check& check, int num_threads,
                       const reference::GradSinks& sinks) {
  static const std::vector<unsigned char> kNoNewKeys;
  const CaseInputs inputs(c, kNoNewKeys);
  const reference::Problem problem = problem_of(c);
  reference::differentiate(
      problem, inputs, rows_to_compare(c, problem, check), keys_to_compare(c, problem, check),
      [&](const reference::RowFacts& row) { return model.pair_errors(row); }, num_threads, sinks);
}

}  // namespace

struct StoredGradients::Rows {
  Rows(const Case& c, const Numerics& numerics) : item(c), model(c, numerics) {}
  Case item;
  BackwardModel model;
  std::mutex mutex;
  Keep keep;
  std::vector<reference::QueryGrads> queries;
  std::vector<reference::KeyGrads> keys;
  std::vector<std::pair<std::span<const reference::RowId>, std::span<const reference::RowFacts>>> facts;
};

StoredGradients::StoredGradients(const Case& c, const Numerics& numerics, CheckMode mode, int num_threads)
    : rows_(std::make_unique<Rows>(c, numerics)) {
  Keep& keep = rows_->keep;
  compute_gradients(rows_->item, rows_->model, {mode, c.seed}, num_threads,
                    {[&](const reference::QueryGrads& g) {
                       const std::lock_guard lock(rows_->mutex);
                       rows_->queries.push_back({keep(g.rows), keep(g.dq), keep(g.variance),
                                                 keep(g.projection), keep(g.few), keep(g.facts)});
                     },
                     [&](const reference::KeyGrads& g) {
                       const std::lock_guard lock(rows_->mutex);
                       rows_->keys.push_back({keep(g.keys), keep(g.dk), keep(g.dk_variance), keep(g.dk_heads),
                                              keep(g.dv), keep(g.dv_variance), keep(g.dv_heads),
                                              keep(g.dk_few), keep(g.dv_few), keep(g.rows)});
                     },
                     [&](std::span<const reference::RowId> rows, std::span<const reference::RowFacts> facts) {
                       const std::lock_guard lock(rows_->mutex);
                       rows_->facts.emplace_back(keep(rows), keep(facts));
                     }});
}

StoredGradients::~StoredGradients() = default;

Verdict StoredGradients::judge(const HostOutputs& outputs) const {
  BackwardJudge judge(rows_->item, outputs, rows_->model);
  for (const reference::QueryGrads& g : rows_->queries) judge.take(g);
  for (const reference::KeyGrads& g : rows_->keys) judge.take(g);
  for (const auto& [rows, facts] : rows_->facts) judge.take_facts(rows, facts);
  return judge.conclude();
}

Verdict verify_backward(const Case& c, const HostOutputs& outputs, const Numerics& numerics,
                        const Check& check, int num_threads) {
  const Check drawn(check.mode, seed_or_drawn(check.rows_seed));
  const auto begin = std::chrono::steady_clock::now();
  const BackwardModel model(c, numerics);
  BackwardJudge judge(c, outputs, model);
  compute_gradients(c, model, drawn, num_threads,
                    {[&](const reference::QueryGrads& g) { judge.take(g); },
                     [&](const reference::KeyGrads& g) { judge.take(g); },
                     [&](std::span<const reference::RowId> rows, std::span<const reference::RowFacts> facts) {
                       judge.take_facts(rows, facts);
                     }});
  Verdict v = judge.conclude();
  if (v.method == "sampled") v.rows_seed = drawn.rows_seed;
  v.reference_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return v;
}

}  // namespace attnbench
