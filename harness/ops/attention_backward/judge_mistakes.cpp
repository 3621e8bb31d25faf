#include "harness/ops/attention_backward/judge_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

#include "harness/judge/case_inputs.h"
#include "harness/judge/mistakes.h"
#include "harness/judge/sample.h"

namespace attnbench {
namespace {

using P = reference::Problem;
using Term = std::function<double(const GradPair&)>;

constexpr std::pair<Grad, const char*> kGradients[] = {
    {Grad::kDq, "dq"}, {Grad::kDk, "dk"}, {Grad::kDv, "dv"}};

/// dS of a pair, in dq and dk.
GradRule ds_is(Term ds) {
  GradRule r;
  r.term = [ds = std::move(ds)](const GradPair& x, Grad of) {
    return of == Grad::kDv ? right_term(x, of) : ds(x);
  };
  return r;
}

/// The weight of dO in dv.
GradRule dv_weight_is(Term weight) {
  GradRule r;
  r.term = [weight = std::move(weight)](const GradPair& x, Grad of) {
    return of == Grad::kDv ? weight(x) : right_term(x, of);
  };
  return r;
}

/// Pairs add nothing to one of the sums unless `also` holds.
GradRule hides(Grad in, std::function<bool(const GradPair&)> also) {
  GradRule r;
  r.term = [in, also = std::move(also)](const GradPair& x, Grad of) {
    return of == in && !also(x) ? 0 : right_term(x, of);
  };
  return r;
}

GradRule factors(double dq, double dk) {
  GradRule r;
  r.dq_factor = dq;
  r.dk_factor = dk;
  return r;
}

double round_in(DType type, double x) { return static_cast<double>(round_to(type, static_cast<float>(x))); }

class GradMistakes {
 public:
  GradMistakes(const P& right, DType type) : p_(right), type_(type) {}

  std::vector<GradMistake> all() && {
    delta();
    if (p_.p_dropout > 0) dropout();
    if (p_.num_heads_q > p_.num_heads_kv) heads();
    sums();
    edges();
    if (p_.softcap > 0) {
      add("softcap_derivative_left_out", "the derivative of the softcap is left out of dS",
          ds_is([](const GradPair& x) { return x.p * (x.keep * x.dp - x.delta); }));
      add("softcap_derivative_of_tanh_alone", "the derivative of the softcap is 1 - tanh, not 1 - tanh^2",
          ds_is([](const GradPair& x) {
            return x.p * (x.keep * x.dp - x.delta) * (1 - std::sqrt(std::max(0.0, 1 - x.slope)));
          }));
    }
    return std::move(out_);
  }

 private:
  void add(std::string fault, std::string text, GradRule rule) {
    out_.push_back({std::move(fault), std::move(text), std::move(rule)});
  }

  void delta() {
    add("delta_left_out", "delta, the row sum of dO * O, is left out of dS",
        ds_is([](const GradPair& x) { return ds_of(x, 0); }));
    add("", "delta has the wrong sign in dS", ds_is([](const GradPair& x) { return ds_of(x, -x.delta); }));
    if (p_.num_heads_q > p_.num_heads_kv)
      add("delta_of_the_first_head", "all query heads of a group have the delta of the first",
          ds_is([](const GradPair& x) { return ds_of(x, x.group_delta); }));
    for (const DType t : {DType::kE4m3, DType::kE5m2}) {
      const std::string name = dtype_name(t);
      add("ds_in_" + name, fmt::format("dS is rounded to {}", name),
          ds_is([t](const GradPair& x) { return round_in(t, ds_of(x, x.delta)); }));
      add(fmt::format("p_in_{}_in_dv", name), fmt::format("P is rounded to {} in dv", name),
          dv_weight_is([t](const GradPair& x) { return round_in(t, x.keep * x.p); }));
    }
    const auto read_as = [](double base) {
      GradRule r;
      r.term = [base](const GradPair& x, Grad of) {
        return right_term(x, of) * std::exp(x.lse * (1 - base));
      };
      return r;
    };
    add("lse_read_as_base_2", "P is exp(score - LSE ln 2): the LSE of base e is taken for one of base 2",
        read_as(std::numbers::ln2));
    add("", "P is exp(score - LSE / ln 2): the LSE of exp2 in an exp", read_as(std::numbers::log2e));
  }

  void dropout() {
    add("delta_multiplied_by_dropout", "dropout multiplies dP - delta in dS, not dP alone",
        ds_is([](const GradPair& x) { return x.p * x.keep * (x.dp - x.delta) * x.slope; }));
    add("dropout_left_out_of_dp", "dropout is left out of dP",
        ds_is([](const GradPair& x) { return x.p * (x.dp - x.delta) * x.slope; }));
    add("dropout_left_out_of_dv", "dropout is left out of dv",
        dv_weight_is([](const GradPair& x) { return x.p; }));
    add("dropout_not_scaled_in_dv", "kept weights are not divided by 1 - dropout in dv",
        dv_weight_is([](const GradPair& x) { return x.keep > 0 ? x.p : 0; }));
    add("", "kept dP is not divided by 1 - dropout",
        ds_is([](const GradPair& x) { return x.p * ((x.keep > 0 ? x.dp : 0) - x.delta) * x.slope; }));
  }

  void heads() {
    const int kv = p_.num_heads_kv, group = p_.num_heads_q / kv;
    GradRule modulo, first, last, mean;
    modulo.kv_head = [kv](int head) { return head % kv; };
    const auto one = [group](int which) {
      return [=](const GradPair& x, Grad of) {
        return of == Grad::kDq || x.head % group == which ? right_term(x, of) : 0;
      };
    };
    first.term = one(0);
    last.term = one(group - 1);
    mean.term = [](const GradPair& x, Grad of) {
      return right_term(x, of) / (of == Grad::kDq ? 1 : x.group);
    };
    add("dk_summed_over_other_heads", fmt::format("query head h adds to dk and dv of KV head h % {}", kv),
        modulo);
    add("dk_of_one_head_of_the_group", "dk and dv have the first query head of each group only", first);
    add("", "dk and dv have the last query head of each group only", last);
    add("dk_averaged_over_the_group", "dk and dv are divided by the number of query heads of a group", mean);
  }

  void sums() {
    const double s = p_.softmax_scale, log2e = std::numbers::log2e;
    add("dq_without_the_scale", "softmax_scale is left out of dq", factors(1 / s, 1));
    add("", "softmax_scale is left out of dk", factors(1, 1 / s));
    add("", "softmax_scale is left out of dq and dk", factors(1 / s, 1 / s));
    add("", "softmax_scale is applied twice in dq", factors(s, 1));
    add("dk_scaled_twice", "softmax_scale is applied twice in dk", factors(1, s));
    add("", "softmax_scale is applied twice in dq and dk", factors(s, s));
    add("", "log2(e) of the scores of exp2 is left in dq and dk", factors(log2e, log2e));
    add("", "log2(e) of the scores of exp2 is left in dk", factors(1, log2e));
    add("", "log2(e) of the scores of exp2 is left in dq", factors(log2e, 1));
    GradRule rounded;
    rounded.round_sum = [t = type_](double x) { return round_in(t, x); };
    if (dtype_size(type_) < sizeof(float))
      add("dq_summed_in_its_type", fmt::format("running sums of dq are rounded to {}", dtype_name(type_)),
          rounded);
    for (const int t : {16, 32, 64, 128}) {
      const auto whole = [t](int at, int of) { return at < of / t * t; };
      add(t == 16 ? "last_keys_lost_in_dq" : "",
          fmt::format("keys behind the last whole tile of {} add nothing to dq", t),
          hides(Grad::kDq, [whole](const GradPair& x) { return whole(x.j, x.k_len); }));
      const auto queries = [&](const char* text, const std::function<bool(const GradPair&)>& also) {
        add(t == 16 ? "last_queries_lost_in_dv" : "", fmt::format("{} {} add nothing to dv", text, t),
            hides(Grad::kDv, also));
        add("", fmt::format("{} {} add nothing to dk", text, t), hides(Grad::kDk, also));
        GradRule both;
        both.term = [also](const GradPair& x, Grad of) {
          return of != Grad::kDq && !also(x) ? 0 : right_term(x, of);
        };
        add("", fmt::format("{} {} add nothing to dk and dv", text, t), both);
      };
      queries("queries behind the last whole tile of",
              [whole](const GradPair& x) { return whole(x.i, x.q_len); });
    }
  }

  /// One key or query that a mask shows is left out of one sum.
  void edges() {
    const auto at = [&](const std::string& fault, const char* what, auto hidden) {
      for (const auto& [of, name] : kGradients)
        add(fault.empty() ? "" : fmt::format("{}_in_{}", fault, name),
            fmt::format("{} adds nothing to {}", what, name),
            hides(of, [hidden](const GradPair& x) { return !hidden(x); }));
    };
    if (p_.causal && !p_.top_left)
      at("diagonal_hidden", "the diagonal", [](const GradPair& x) { return x.j == x.diag(); });
    if (p_.window_left >= 0)
      at("window_one_short", "the first key of window_left",
         [left = p_.window_left](const GradPair& x) { return x.j == x.diag() - left; });
    if (p_.window_right >= 0 && !p_.causal)
      at("", "the last key of window_right",
         [right = p_.window_right](const GradPair& x) { return x.j == x.diag() + right; });
    constexpr int kMostTold = 64;
    const int queries = std::min(kMostTold, p_.q_lens.empty() ? 0 : *std::ranges::max_element(p_.q_lens));
    for (int i = 0; i < queries; ++i) {
      for (const auto& [of, name] : kGradients)
        add(i == 7 && of == Grad::kDk ? "one_query_lost_in_dk" : "",
            fmt::format("{} {} adds nothing to {}", of == Grad::kDq ? "key" : "query", i, name),
            hides(of, [i, key = of == Grad::kDq](const GradPair& x) { return (key ? x.j : x.i) != i; }));
    }
  }

  const P& p_;
  DType type_;
  std::vector<GradMistake> out_;
};

/// Judges rules by rows of one sequence.
class Fit {
 public:
  Fit(std::vector<const GradRow*> rows, const GotGradient& got, const GradPairs& right, double roundoff)
      : rows_(std::move(rows)), got_(got), roundoff_(std::max(roundoff, 1e-5)) {
    for (const GradRow* r : rows_) right_.push_back(right.row({}, r->of, r->pos, r->head));
  }

  /// Whether a rule gives all rows, wrong and right ones, but for a few roundings.
  bool explains(const GradRule& rule, const GradPairs& pairs) const {
    constexpr double kRoundings = 4, kLeastGain = 8;
    std::map<Grad, Sums> sums;
    for (std::size_t n = 0; n < rows_.size(); ++n) {
      const GradRow& r = *rows_[n];
      Sums& of = sums[r.of];
      const std::vector<double> other = pairs.row(rule, r.of, r.pos, r.head);
      for (std::size_t c = 0; c < other.size(); ++c) {
        const double got = got_(r, static_cast<int>(c));
        of.error += square(got - other[c]);
        of.size += square(other[c]);
        of.right_error += square(got - right_[n][c]);
      }
      of.wrong = of.wrong || r.wrong;
    }
    return std::ranges::all_of(sums, [&](const auto& entry) {
      const Sums& s = entry.second;
      return s.error <= square(kRoundings * roundoff_) * s.size &&
             (!s.wrong || s.error * square(kLeastGain) <= s.right_error);
    });
  }

 private:
  struct Sums {
    double error = 0, size = 0, right_error = 0;
    bool wrong = false;
  };
  static double square(double x) { return x * x; }

  std::vector<const GradRow*> rows_;
  const GotGradient& got_;
  std::vector<std::vector<double>> right_;
  double roundoff_;
};

/// The cheapest sequence with wrong rows of every gradient that has some.
std::optional<int> sequence_of(const P& p, std::span<const GradRow> rows) {
  constexpr int64_t kMostPairs = 1 << 20;
  std::map<int, std::map<Grad, int>> wrong;
  std::map<Grad, int> any;
  for (const GradRow& r : rows) {
    if (!r.wrong) continue;
    ++wrong[r.seq][r.of];
    any[r.of] = 1;
  }
  std::optional<int> best;
  int64_t least = kMostPairs;
  for (const auto& [seq, of] : wrong) {
    const auto b = static_cast<std::size_t>(seq);
    const int64_t pairs = int64_t{p.q_lens[b]} * p.k_lens[b] * p.num_heads_q;
    if (of.size() == any.size() && pairs < least) {
      best = seq;
      least = pairs;
    }
  }
  return best;
}

}  // namespace

std::vector<GradMistake> grad_mistakes(const P& right, DType type) { return GradMistakes(right, type).all(); }

std::vector<std::string> grad_clues(const Case& c, std::span<const GradRow> rows, const GotGradient& got,
                                    double roundoff, int num_threads) {
  constexpr std::size_t kWrong = 12, kRight = 4;  // of each gradient
  constexpr double kMostPairsOfForward = 1 << 17;
  const P right = problem_of(c);
  const std::optional<int> seq = sequence_of(right, rows);
  if (!seq) return {};
  std::map<std::pair<Grad, bool>, std::vector<const GradRow*>> of_kind;
  for (const GradRow& r : rows) {
    if (r.seq == *seq) of_kind[{r.of, r.wrong}].push_back(&r);
  }
  std::vector<const GradRow*> tried;
  std::size_t wrong = 0;
  for (const auto& [kind, all] : of_kind) {
    const std::size_t count = std::min(all.size(), kind.second ? kWrong : kRight);
    for (std::size_t i = 0; i < count; ++i) tried.push_back(all[i * all.size() / count]);
    wrong += kind.second ? count : 0;
  }
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  const GradPairs pairs(right, right, inputs, *seq, num_threads);
  const Fit fit(tried, got, pairs, roundoff);
  std::vector<std::string> texts;
  for (const GradMistake& m : grad_mistakes(right, c.params.type_of_out())) {
    if (fit.explains(m.rule, pairs)) texts.push_back(m.text);
  }
  const auto b = static_cast<std::size_t>(*seq);
  const bool few =
      static_cast<double>(right.q_lens[b]) * right.k_lens[b] * right.num_heads_q < kMostPairsOfForward;
  if (texts.empty() && few) {
    for (const Mistake& m : mistakes_of(right, {}, inputs)) {
      if (!m.in_pairs || m.misreads || m.problem.k_lens != right.k_lens) continue;
      const GradPairs whole(m.problem, m.problem, inputs, *seq, num_threads);
      // O and LSE are given, so dropout is of the pairs alone.
      const GradPairs mask_alone(m.problem, right, inputs, *seq, num_threads);
      const bool dropout = m.problem.dropout_seed != right.dropout_seed ||
                           m.problem.dropout_offset != right.dropout_offset || !m.problem.q_begins.empty();
      if (fit.explains({}, whole) || (dropout && fit.explains({}, mask_alone))) texts.push_back(m.text);
      if (m.problem.softcap == right.softcap && m.problem.softmax_scale == right.softmax_scale) continue;
      const GradPairs p_alone(right, m.problem, inputs, *seq, num_threads);
      if (fit.explains({}, p_alone)) texts.push_back("in P, " + m.text);
    }
  }
  for (std::string& text : texts)
    text = fmt::format("looks like: {} (all {} wrong rows tried match this mistake)", text, wrong);
  if (texts.size() > 1)
    texts.push_back(fmt::format(
        "these {} mistakes cannot be told apart on these rows; a case with other lengths or heads may tell",
        texts.size()));
  return texts;
}

std::string sink_clue(std::span<const float> got, std::span<const double> by_seq) {
  const std::size_t heads = got.size(), seqs = by_seq.size() / heads;
  std::vector<double> right(heads, 0.0);
  for (std::size_t i = 0; i < by_seq.size(); ++i) right[i % heads] += by_seq[i];
  const auto is = [&](const auto& expected) {
    for (std::size_t h = 0; h < heads; ++h) {
      if (!(std::abs(static_cast<double>(got[h]) - expected(h)) <= 1e-3 * std::abs(right[h]))) return false;
    }
    return true;
  };
  if (is([](std::size_t) { return 0.0; })) return "looks like: dsinks is 0";
  if (is([&](std::size_t h) { return -right[h]; })) return "looks like: dsinks has the other sign";
  for (std::size_t b = 0; b < seqs && seqs > 1; ++b) {
    if (is([&](std::size_t h) { return by_seq[b * heads + h]; }))
      return fmt::format("looks like: dsinks has the terms of sequence {} alone", b);
    if (is([&](std::size_t h) { return right[h] - by_seq[b * heads + h]; }))
      return fmt::format("looks like: dsinks lacks the terms of sequence {}", b);
  }
  std::string factors;
  for (std::size_t h = 0; h < heads; ++h) {
    const double f = static_cast<double>(got[h]) / right[h];
    if (!(std::abs(f - 1) <= 1e-3))
      factors += fmt::format("{} of head {} by {:.4g}", factors.empty() ? "" : ",", h, f);
  }
  return factors.empty() ? "" : fmt::format("dsinks is off by a factor:{}", factors);
}

}  // namespace attnbench
