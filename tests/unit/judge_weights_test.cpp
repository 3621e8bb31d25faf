// What clues say of made-up weights of keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <utility>

#include "harness/judge/sample.h"
#include "harness/judge/weights.h"

namespace attnbench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr double kTolerance = 0.03;

Case causal_case() {
  Case c;
  c.params.num_heads_q = 4;
  c.params.num_heads_kv = 2;
  c.params.head_dim = 32;
  c.params.causal = true;
  c.params.seqs = {{6, 90}, {40, 70}};
  return c;
}

/// A kernel's score of a key, given the row and its right scores; -inf: not seen.
using Score = std::function<double(const WeighedRow& row, int key)>;

double right(const WeighedRow& row, int key) {
  const auto j = static_cast<std::size_t>(key);
  return row.seen[j] != 0 ? row.score[j] : -INFINITY;
}

/// Rows whose weights are a softmax of `score`, times `factor` of the row.
std::vector<WeighedRow> weighed(
    const Case& c, bool zero_q, const Score& score,
    const std::function<double(const WeighedRow&)>& factor = [](auto&) { return 1; }) {
  const auto ids = reference::all_rows(problem_of(c));
  std::vector<WeighedRow> rows = rows_to_weigh(c, ids, zero_q, 1);
  for (WeighedRow& row : rows) {
    double sum = 0;
    for (int j = 0; j < row.keys(); ++j)
      sum += row.weight[static_cast<std::size_t>(j)] = std::exp(score(row, j));
    row.got_lse = std::log(sum);
    for (double& w : row.weight) w *= factor(row) / sum;
  }
  return rows;
}

std::string counts_clue(const Score& score, const Case& c = causal_case()) {
  return count_keys(c.params, weighed(c, true, score), kTolerance).clue;
}

std::string clue(
    const Score& score, const std::function<double(const WeighedRow&)>& factor = [](auto&) { return 1; }) {
  const Case c = causal_case();
  const auto rows = weighed(c, false, score, factor);
  return weights_clue(c.params, rows, count_keys(c.params, weighed(c, true, right), kTolerance), kTolerance);
}

TEST(Weights, RightOnesSayNothing) {
  EXPECT_THAT(counts_clue(right), IsEmpty());
  EXPECT_THAT(clue(right), IsEmpty());
}

TEST(Weights, MissingKeys) {
  const auto without = [](const std::function<bool(const WeighedRow&, int)>& lost) {
    return [lost](const WeighedRow& r, int j) { return lost(r, j) ? -INFINITY : right(r, j); };
  };
  EXPECT_THAT(
      counts_clue(without([](const WeighedRow& r, int j) { return j == r.last(); })),
      StartsWith("184 of 184 rows miss keys: its last key; seq 0 pos 0 head 0: 84 (it must see 0 to 84)"));
  EXPECT_THAT(counts_clue(without([](const WeighedRow& r, int j) { return j >= r.keys() / 16 * 16; })),
              HasSubstr("miss keys: those behind the last whole block of 16 keys of its sequence; "));
  EXPECT_THAT(counts_clue(without([](const WeighedRow&, int j) { return j == 13; })),
              HasSubstr("miss keys: key 13; "));
  EXPECT_THAT(counts_clue(without([](const WeighedRow&, int j) { return j % 8 == 5; })),
              HasSubstr("miss keys: those at 5 of each block of 8 keys; "));
}

TEST(Weights, KeysThatMustNotBeSeen) {
  const auto with = [](const std::function<bool(const WeighedRow&, int)>& more, double score) {
    return [more, score](const WeighedRow& r, int j) { return more(r, j) ? score : right(r, j); };
  };
  EXPECT_THAT(counts_clue(with([](const WeighedRow& r, int j) { return j == r.last() + 1; }, 0)),
              HasSubstr("see keys that they must not see: the key behind its last one; "));
  EXPECT_THAT(counts_clue(with(
                  [](const WeighedRow& r, int j) { return j > r.last() && j / 32 == r.last() / 32; }, 0)),
              HasSubstr("those behind its last one, up to the end of its block of 32 keys; "));
  EXPECT_THAT(
      counts_clue(with([](const WeighedRow& r, int j) { return j > r.last(); }, -2)),
      HasSubstr(
          "all others of its sequence; seq 0 pos 0 head 0: 85 to 89 (it must see 0 to 84), which weigh 0.135 "
          "times as much as visible ones at q = 0, as with a score of -2"));
}

TEST(Weights, KeysOfOtherQueries) {
  // The queries of a group's heads are packed: row (pos, head) is masked as query (head % 2 * 40 + pos) / 2.
  const auto packed = [](const WeighedRow& r, int j) {
    const int q_len = r.keys() == 70 ? 40 : 6, query = (r.id.head % 2 * q_len + r.id.pos) / 2;
    return j <= query + r.keys() - q_len ? 0.0 : -INFINITY;
  };
  EXPECT_THAT(
      counts_clue(packed),
      AllOf(StartsWith("rows see the keys of other queries: seq 0 pos 0 head 1 sees those of pos 3, "),
            HasSubstr("the query is (head % group * q_len + pos) / group in all rows")));
}

TEST(Weights, TermsOfScoreZero) {
  const Case c = causal_case();
  auto rows = weighed(c, true, right);
  for (WeighedRow& r : rows) {
    const double n = r.last() + 1, terms = n + 3;
    for (double& w : r.weight) w *= n / terms;
    r.got_lse = std::log(terms);
  }
  EXPECT_THAT(count_keys(c.params, rows, kTolerance).clue,
              HasSubstr("seq 0 pos 0 head 0 sees 85 keys, and its denominator has 88 terms"));
}

TEST(Weights, Denominators) {
  EXPECT_THAT(clue(right, [](const WeighedRow&) { return 0.5; }),
              StartsWith("the weights of a row are right among each other, but have the factor 0.5, "));
  const auto not_rescaled = [](const WeighedRow& r) {
    double sum = 0, right_sum = 0, top = -INFINITY;
    for (int j = 0; j <= r.last(); ++j) {
      if (j % 16 == 0) {
        for (int i = j; i < std::min(j + 16, r.last() + 1); ++i)
          top = std::max(top, r.score[static_cast<std::size_t>(i)]);
      }
      sum += std::exp(r.score[static_cast<std::size_t>(j)] - top);
    }
    for (int j = 0; j <= r.last(); ++j) right_sum += std::exp(r.score[static_cast<std::size_t>(j)] - top);
    return right_sum / sum;
  };
  EXPECT_THAT(clue(right, not_rescaled),
              HasSubstr("the sum is not rescaled when a later block of 16 keys raises the maximum (O is)"));
}

TEST(Weights, Scores) {
  EXPECT_THAT(clue([](const WeighedRow& r, int j) { return 0.5 * right(r, j); }),
              StartsWith("scores have the factor 0.5 "));
  EXPECT_THAT(clue([](const WeighedRow& r, int j) {
                const int diag = r.last();
                return right(r, j) - 0.02 * (r.id.head + 1) * (diag - j);
              }),
              StartsWith("scores fall with the distance of query and key by 0.02 (head 0), 0.04 (head 1)"));
  EXPECT_THAT(clue([](const WeighedRow& r, int j) { return std::min(right(r, j), 1.0); }),
              StartsWith("scores are changed by a function of the score alone"));
  EXPECT_THAT(clue([](const WeighedRow& r, int j) { return (j % 16 == 7 ? 0.5 : 1) * right(r, j); }),
              HasSubstr("those at 7 of each block of 16 keys"));
}

TEST(Weights, ScoresOfOtherKeys) {
  const auto stale = [](const WeighedRow& r, int j) {
    return right(r, j) == -INFINITY ? -INFINITY : right(r, j % 32);
  };
  EXPECT_THAT(
      clue(stale),
      StartsWith("keys have the scores of other keys, as if K is read in other places than V: keys 32 to 63 "
                 "those of 0 to 31"));
}

TEST(Weights, ValuesOfOtherKeys) {
  const Case c = causal_case();
  auto rows = weighed(c, false, right);
  EXPECT_THAT(value_places(c.params, rows, kTolerance), IsEmpty());
  for (WeighedRow& r : rows) {  // V of keys 32 to 63 is that of the block before
    for (std::size_t j = 32; j < 64; ++j) r.weight[j - 32] += std::exchange(r.weight[j], 0.0);
  }
  EXPECT_THAT(value_places(c.params, rows, kTolerance),
              HasSubstr("those of keys 32 to 63 meet V of 0 to 31"));
  rows.front().got_lse += 1;
  EXPECT_THAT(value_places(c.params, rows, kTolerance), IsEmpty()) << "K may be wrong, too";
}

/// The largest score up to the end of the block of a key, and of that block alone.
std::pair<double, double> maxima(const WeighedRow& r, int key, int block) {
  double running = -INFINITY, own = -INFINITY;
  for (int j = 0; j < std::min(r.last() + 1, (key / block + 1) * block); ++j) {
    running = std::max(running, r.score[static_cast<std::size_t>(j)]);
    if (j / block == key / block) own = std::max(own, r.score[static_cast<std::size_t>(j)]);
  }
  return {running, own};
}

TEST(Weights, FactorsOfBlocks) {
  EXPECT_THAT(
      clue([](const WeighedRow& r, int j) { return right(r, j) - maxima(r, j, 32).first; }),
      HasSubstr("what is summed in O is not rescaled when a later block of 32 keys raises the maximum"));
  EXPECT_THAT(clue([](const WeighedRow& r, int j) {
                return right(r, j) - (1 - std::numbers::ln2) * maxima(r, j, 32).first;
              }),
              HasSubstr("is rescaled by exp2 of a natural difference when a later block of 32 keys"));
  EXPECT_THAT(clue([](const WeighedRow& r, int j) {
                const auto [running, own] = maxima(r, j, 16);
                return right(r, j) + running - own;
              }),
              HasSubstr("the weights of a block of 16 keys are relative to its own maximum"));
  const auto merged = [](double power) {
    return [power](const WeighedRow& r, int j) {
      double sum = 0;
      for (int i = j / 32 * 32; i < std::min(r.last() + 1, (j / 32 + 1) * 32); ++i)
        sum += std::exp(r.score[static_cast<std::size_t>(i)]);
      return right(r, j) + (power - 1) * std::log(sum);
    };
  };
  EXPECT_THAT(clue([](const WeighedRow& r, int j) {
                double sum = 0;
                for (int i = j / 24 * 24; i < std::min(r.last() + 1, (j / 24 + 1) * 24); ++i)
                  sum += std::exp(r.score[static_cast<std::size_t>(i)] - maxima(r, j, 24).second);
                return right(r, j) - std::log(sum);
              }),
              HasSubstr("parts of 24 keys are merged by exp of their maxima, without their sums"));
  EXPECT_THAT(clue(merged(0)), HasSubstr("parts of 32 keys count the same, whatever their LSEs are"));
  EXPECT_THAT(clue(merged(std::numbers::ln2)),
              HasSubstr("parts of 32 keys are merged by exp2 of their natural LSEs"));
  EXPECT_THAT(clue([](const WeighedRow& r, int j) {
                const int block = j / 32;
                return right(r, j) + std::sin(double(block * (r.id.pos + 3)));
              }),
              HasSubstr("blocks have wrong factors among each other: perhaps"));
}

}  // namespace
}  // namespace attnbench
