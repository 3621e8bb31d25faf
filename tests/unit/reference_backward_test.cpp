// The backward reference against central differences of the forward reference, and its variances against plain
// sums over pairs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/backward.h"

namespace attnbench::reference {
namespace {

/// q, K, V and dO in memory, (head, row, channel) per sequence.
class Stored : public BackwardInputs {
 public:
  explicit Stored(const Problem& p) : p_(p) {
    std::mt19937 rng(7);
    std::normal_distribution<double> normal;
    const auto draw = [&](int heads, int dim, const std::vector<int>& lens,
                          std::vector<std::vector<double>>& to) {
      for (const int n : lens) {
        to.emplace_back(static_cast<size_t>(heads) * static_cast<size_t>(n) * static_cast<size_t>(dim));
        for (double& x : to.back()) x = normal(rng);
      }
    };
    draw(p.num_heads_q, p.head_dim, p.q_lens, q);
    draw(p.num_heads_kv, p.head_dim, p.k_lens, k);
    draw(p.num_heads_kv, p.value_dim(), p.k_lens, v);
    draw(p.num_heads_q, p.value_dim(), p.q_lens, d_out);
  }
  void load_q(int seq, int head, int begin, int end, double* out) const override {
    copy(q, p_.q_lens, p_.head_dim, seq, head, begin, end, out);
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    copy(k, p_.k_lens, p_.head_dim, seq, head, begin, end, out);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    copy(v, p_.k_lens, p_.value_dim(), seq, head, begin, end, out);
  }
  void load_d_out(int seq, int head, int begin, int end, double* out) const override {
    copy(d_out, p_.q_lens, p_.value_dim(), seq, head, begin, end, out);
  }
  double* row(std::vector<std::vector<double>>& t, const std::vector<int>& lens, int dim, int seq, int head,
              int pos) {
    return t[seq].data() + (static_cast<size_t>(head) * lens[seq] + pos) * dim;
  }

  std::vector<std::vector<double>> q, k, v, d_out;

 private:
  static void copy(const std::vector<std::vector<double>>& t, const std::vector<int>& lens, int dim, int seq,
                   int head, int begin, int end, double* out) {
    ASSERT_LE(end, lens[seq]);
    const double* from = t[seq].data() + (static_cast<size_t>(head) * lens[seq] + begin) * dim;
    std::copy_n(from, static_cast<size_t>(end - begin) * dim, out);
  }
  const Problem& p_;
};

/// The loss sum O dO, by the forward reference.
double loss(const Problem& p, const Stored& in) {
  double sum = 0;
  std::mutex mutex;
  const int dim = p.value_dim();
  std::vector<double> d_out(dim);
  attend(p, in, all_rows(p), 1, [&](const RowBlock& b) {
    const std::lock_guard lock(mutex);
    for (size_t r = 0; r < b.rows.size(); ++r) {
      in.load_d_out(b.rows[r].seq, b.rows[r].head, b.rows[r].pos, b.rows[r].pos + 1, d_out.data());
      for (int c = 0; c < dim; ++c) sum += b.o[r * dim + c] * d_out[c];
    }
  });
  return sum;
}

double slope_of(const std::function<double()>& f, double& x) {
  constexpr double kStep = 1e-5;
  const double at = x;
  x = at + kStep;
  const double above = f();
  x = at - kStep;
  const double below = f();
  x = at;
  return (above - below) / (2 * kStep);
}

struct Found {
  std::vector<RowId> rows;
  std::vector<double> dq, variance, projection, few;
  std::vector<KeyId> keys;
  std::vector<double> dk, dk_variance, dv, dv_variance, dk_few, dv_few;
  std::vector<int64_t> seen;
  std::vector<double> dsinks;
  std::vector<RowFacts> facts;
};

PairErrors some_errors(const RowFacts& f) {
  return {0.01 + 0.001 * f.dot_norm, 0.02, 0.03 + 0.001 * f.score_most, 0.04, 0.05, 1e-3, 2e-3};
}

Found differentiated(const Problem& p, const Stored& in, const std::vector<RowId>& rows,
                     const std::vector<KeyId>& keys, const PairErrorModel& errors = some_errors) {
  Found f;
  f.dsinks.assign(p.sinks.size(), 0.0);
  std::mutex mutex;
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  differentiate(p, in, rows, keys, errors, 2,
                {[&](const QueryGrads& g) {
                   const std::lock_guard lock(mutex);
                   add(f.rows, g.rows);
                   add(f.dq, g.dq);
                   add(f.variance, g.variance);
                   add(f.projection, g.projection);
                   add(f.few, g.few);
                   add(f.facts, g.facts);
                 },
                 [&](const KeyGrads& g) {
                   const std::lock_guard lock(mutex);
                   add(f.keys, g.keys);
                   add(f.dk, g.dk);
                   add(f.dk_variance, g.dk_variance);
                   add(f.dv, g.dv);
                   add(f.dv_variance, g.dv_variance);
                   add(f.dk_few, g.dk_few);
                   add(f.dv_few, g.dv_few);
                   add(f.seen, g.rows);
                 },
                 [&](std::span<const RowId> ids, std::span<const RowFacts> facts) {
                   const std::lock_guard lock(mutex);
                   for (size_t i = 0; i < ids.size() && !p.sinks.empty(); ++i) {
                     const size_t h = static_cast<size_t>(ids[i].head);
                     f.dsinks[h] -= std::exp(p.sinks[h] - facts[i].lse) * facts[i].delta;
                   }
                 }});
  return f;
}

Problem uneven() {
  Problem p;
  p.head_dim = 6;
  p.head_dim_v = 4;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.q_lens = {3, 0, 4, 2, 5};
  p.k_lens = {5, 2, 0, 2, 3};
  p.softmax_scale = 0.4;
  return p;
}

void expect_differences(Problem p) {
  Stored in(p);
  const Found f = differentiated(p, in, all_rows(p), all_keys(p));
  ASSERT_EQ(f.rows.size(), all_rows(p).size());
  ASSERT_EQ(f.keys.size(), all_keys(p).size());
  const auto by_loss = [&] { return loss(p, in); };
  const auto near = [](double got, double want) {
    return std::abs(got - want) < 1e-6 * (1 + std::abs(want));
  };
  for (size_t r = 0; r < f.rows.size(); ++r) {
    const RowId id = f.rows[r];
    double* q = in.row(in.q, p.q_lens, p.head_dim, id.seq, id.head, id.pos);
    for (int c = 0; c < p.head_dim; ++c)
      ASSERT_PRED2(near, f.dq[r * p.head_dim + c], slope_of(by_loss, q[c]))
          << id.seq << " " << id.pos << " " << id.head;
  }
  for (size_t r = 0; r < f.keys.size(); ++r) {
    const KeyId id = f.keys[r];
    double* k = in.row(in.k, p.k_lens, p.head_dim, id.seq, id.kv_head, id.pos);
    double* v = in.row(in.v, p.k_lens, p.value_dim(), id.seq, id.kv_head, id.pos);
    for (int c = 0; c < p.head_dim; ++c)
      ASSERT_PRED2(near, f.dk[r * p.head_dim + c], slope_of(by_loss, k[c])) << id.seq << " " << id.pos;
    for (int c = 0; c < p.value_dim(); ++c)
      ASSERT_PRED2(near, f.dv[r * p.value_dim() + c], slope_of(by_loss, v[c])) << id.seq << " " << id.pos;
  }
  for (size_t h = 0; h < p.sinks.size(); ++h) ASSERT_PRED2(near, f.dsinks[h], slope_of(by_loss, p.sinks[h]));
}

TEST(ReferenceBackward, PlainAndMasked) {
  expect_differences(uneven());
  Problem p = uneven();
  p.causal = true;
  expect_differences(p);
  p.top_left = true;
  expect_differences(p);
  p = uneven();
  p.window_left = 1;
  p.window_right = 1;
  expect_differences(p);
}

TEST(ReferenceBackward, Softcap) {
  Problem p = uneven();
  p.softcap = 1.5;
  expect_differences(p);
}

TEST(ReferenceBackward, Alibi) {
  Problem p = uneven();
  p.alibi_slopes = {0.5, -0.2, 0.1, 0.7};
  expect_differences(p);
  p.alibi_sqrt = true;
  p.softcap = 2;
  p.alibi_slopes.clear();
  for (size_t i = 0; i < 4 * p.q_lens.size(); ++i) p.alibi_slopes.push_back(0.1 * static_cast<double>(i % 7));
  expect_differences(p);
}

TEST(ReferenceBackward, Sinks) {
  Problem p = uneven();
  p.sinks = {0.3, 2.0, -1.0, 5.0};
  p.causal = true;
  expect_differences(p);
}

TEST(ReferenceBackward, Dropout) {
  Problem p = uneven();
  p.p_dropout = 0.3f;
  p.dropout_seed = 11;
  p.dropout_offset = 0x500000003ull;
  expect_differences(p);
  p.softcap = 3;
  p.sinks = {0.3, 2.0, -1.0, 0.0};
  expect_differences(p);
}

/// Plain sums over all pairs: facts, variances, projections and shares.
void expect_sums(const Problem& p) {
  Stored in(p);
  const Found f = differentiated(p, in, all_rows(p), all_keys(p));
  const int d = p.head_dim, dv = p.value_dim(), ratio = p.num_heads_q / p.num_heads_kv;
  struct Pair {
    double ds, cp, w, x_dq, x_dk, x_dv;
  };
  const auto row_of = [&](const RowId& id) {
    return std::find_if(f.rows.begin(), f.rows.end(), [&](const RowId& o) { return o == id; }) -
           f.rows.begin();
  };
  const auto pair = [&](const RowId& id, int j) {
    const RowFacts& facts = f.facts[static_cast<size_t>(row_of(id))];
    const double* q = in.row(in.q, p.q_lens, d, id.seq, id.head, id.pos);
    const double* k = in.row(in.k, p.k_lens, d, id.seq, id.head / ratio, j);
    const double* v = in.row(in.v, p.k_lens, dv, id.seq, id.head / ratio, j);
    const double* g = in.row(in.d_out, p.q_lens, dv, id.seq, id.head, id.pos);
    double t = 0, dp = 0;
    for (int c = 0; c < d; ++c) t += p.softmax_scale * q[c] * k[c];
    for (int c = 0; c < dv; ++c) dp += g[c] * v[c];
    const double slope = p.softcap > 0 ? 1 - std::pow(std::tanh(t / p.softcap), 2) : 1;
    const double prob = std::exp((p.softcap > 0 ? p.softcap * std::tanh(t / p.softcap) : t) - facts.lse);
    const double inner = prob * (dp - facts.delta);
    const PairErrors e = some_errors(facts);
    Pair x{};
    x.ds = slope * inner;
    x.cp = slope * prob;
    x.w = prob;
    const double capped = p.softcap > 0 ? e.capped * inner * inner : 0;
    x.x_dq = e.dq_relative * x.ds * x.ds + e.dq_absolute * x.cp * x.cp + capped + e.ds_spacing;
    x.x_dk = e.key_relative * x.ds * x.ds + e.key_absolute * x.cp * x.cp + capped + e.ds_spacing;
    x.x_dv = e.key_relative * x.w * x.w + e.w_spacing;
    return x;
  };
  const double s2 = p.softmax_scale * p.softmax_scale;
  for (size_t r = 0; r < f.rows.size(); ++r) {
    for (int c = 0; c < d; ++c) {
      double variance = 0, projection = 0;
      for (int j = 0; j < p.k_lens[f.rows[r].seq]; ++j) {
        const double k = in.row(in.k, p.k_lens, d, f.rows[r].seq, f.rows[r].head / ratio, j)[c];
        const Pair x = pair(f.rows[r], j);
        variance += x.x_dq * s2 * k * k;
        projection += x.cp * p.softmax_scale * k;
      }
      ASSERT_NEAR(f.variance[r * d + c], variance, 1e-12 * (1 + variance));
      ASSERT_NEAR(f.projection[r * d + c], projection, 1e-12);
    }
  }
  for (size_t r = 0; r < f.keys.size(); ++r) {
    const KeyId key = f.keys[r];
    std::vector<double> dk(d), value(dv);
    double sum = 0, squares = 0;
    for (int i = 0; i < p.q_lens[key.seq]; ++i) {
      for (int h = key.kv_head * ratio; h < (key.kv_head + 1) * ratio; ++h) {
        const Pair x = pair({key.seq, i, h}, key.pos);
        double norm2 = 0;
        for (int c = 0; c < d; ++c) {
          const double q = in.row(in.q, p.q_lens, d, key.seq, h, i)[c];
          dk[c] += x.x_dk * s2 * q * q;
          norm2 += s2 * q * q;
        }
        for (int c = 0; c < dv; ++c)
          value[c] += x.x_dv * std::pow(in.row(in.d_out, p.q_lens, dv, key.seq, h, i)[c], 2);
        sum += x.x_dk * norm2;
        squares += x.x_dk * norm2 * x.x_dk * norm2;
      }
    }
    for (int c = 0; c < d; ++c) ASSERT_NEAR(f.dk_variance[r * d + c], dk[c], 1e-12 * (1 + dk[c]));
    for (int c = 0; c < dv; ++c) ASSERT_NEAR(f.dv_variance[r * dv + c], value[c], 1e-12 * (1 + value[c]));
    ASSERT_NEAR(f.dk_few[r], sum > 0 ? squares / (sum * sum) : 0, 1e-12);
    ASSERT_EQ(f.seen[r], p.q_lens[key.seq] * ratio);
  }
}

TEST(ReferenceBackward, VariancesAreSumsOverPairs) {
  expect_sums(uneven());
  Problem p = uneven();
  p.softcap = 1.2;
  expect_sums(p);
}

// Lengths over several blocks of keys and chunks of rows; a sample costs only what it needs.
TEST(ReferenceBackward, ASampleIsAPartOfTheWhole) {
  Problem p = uneven();
  p.q_lens = {300, 40};
  p.k_lens = {400, 700};
  p.causal = true;
  p.sinks = {0.3, 2.0, -1.0, 5.0};
  Stored in(p);
  const Found all = differentiated(p, in, all_rows(p), all_keys(p));
  const std::vector<RowId> rows = {{0, 0, 1}, {0, 299, 3}, {1, 17, 0}, {0, 128, 2}};
  const std::vector<KeyId> keys = {{0, 399, 1}, {0, 0, 1}, {1, 511, 0}, {0, 1, 1}};
  const Found some = differentiated(p, in, rows, keys);
  ASSERT_EQ(some.rows.size(), rows.size());
  ASSERT_EQ(some.keys.size(), keys.size());
  for (size_t r = 0; r < some.rows.size(); ++r) {
    const RowId id = some.rows[r];
    for (size_t a = 0; a < all.rows.size(); ++a) {
      if (all.rows[a].seq != id.seq || all.rows[a].pos != id.pos || all.rows[a].head != id.head) continue;
      for (int c = 0; c < p.head_dim; ++c)
        EXPECT_NEAR(some.dq[r * p.head_dim + c], all.dq[a * p.head_dim + c], 1e-13);
    }
  }
  for (size_t r = 0; r < some.keys.size(); ++r) {
    const KeyId id = some.keys[r];
    for (size_t a = 0; a < all.keys.size(); ++a) {
      if (all.keys[a].seq != id.seq || all.keys[a].pos != id.pos || all.keys[a].kv_head != id.kv_head)
        continue;
      for (int c = 0; c < p.head_dim; ++c)
        EXPECT_NEAR(some.dk[r * p.head_dim + c], all.dk[a * p.head_dim + c], 1e-13);
      for (int c = 0; c < p.value_dim(); ++c)
        EXPECT_NEAR(some.dv[r * p.value_dim() + c], all.dv[a * p.value_dim() + c], 1e-13);
    }
  }
}

TEST(ReferenceBackward, RefusesWhatIsNotInTheProblem) {
  const Problem p = uneven();
  const Stored in(p);
  const std::vector<KeyId> beyond = {{0, 5, 0}};
  EXPECT_THROW(differentiate(p, in, {}, beyond, some_errors, 1, {}), std::invalid_argument);
}

}  // namespace
}  // namespace attnbench::reference
