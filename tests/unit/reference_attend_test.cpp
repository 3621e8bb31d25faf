// The reference against plain loops in long double, and against itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <vector>

#include "reference/reference.h"

namespace attnbench::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

enum class Tensor : uint64_t { kQ = 1, kK = 2, kV = 3 };

// About normal values, a function of the coordinate alone. A sequence is known by its name, so that it can be
// the same one in several problems.
struct Values {
  std::vector<int> names;
  double q_factor = 1.0;
  double v_offset = 0.0;
  double v_spread = 1.0;
  double v_factor = 1.0;

  double at(Tensor tensor, int seq, int head, int row, int channel) const {
    uint64_t x = static_cast<uint64_t>(tensor);
    for (int part : {names.empty() ? seq : names[seq], head, row, channel}) {
      x = (x + static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15ull;
      x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
      x ^= x >> 31;
    }
    double sum = 0.0;  // of four uniform 16-bit numbers: exact
    for (int i = 0; i < 4; ++i) sum += static_cast<double>((x >> (16 * i)) & 0xffff) / 65536.0 - 0.5;
    sum *= 1.7;
    if (tensor == Tensor::kQ) return sum * q_factor;
    if (tensor == Tensor::kV) return (sum * v_spread + v_offset) * v_factor;
    return sum;
  }
};

// Hands values out and fails where it is asked for rows that are not there.
class TestInputs : public Inputs {
 public:
  TestInputs(const Problem& problem, const Values& values) : problem_(problem), values_(values) {}
  void load_q(int seq, int head, int begin, int end, double* out) const override {
    EXPECT_LE(end, problem_.q_lens[seq]);
    EXPECT_LT(head, problem_.num_heads_q);
    write(Tensor::kQ, seq, head, begin, end, out);
  }
  void load_k(int seq, int kv_head, int begin, int end, double* out) const override {
    EXPECT_LE(end, problem_.k_lens[seq]);
    EXPECT_LT(kv_head, problem_.num_heads_kv);
    write(Tensor::kK, seq, kv_head, begin, end, out);
  }
  void load_v(int seq, int kv_head, int begin, int end, double* out) const override {
    EXPECT_LE(end, problem_.k_lens[seq]);
    write(Tensor::kV, seq, kv_head, begin, end, out);
  }
  int64_t keys_loaded() const { return keys_loaded_; }

 private:
  void write(Tensor tensor, int seq, int head, int begin, int end, double* out) const {
    EXPECT_LE(0, begin);
    EXPECT_LT(begin, end);
    if (tensor == Tensor::kK) keys_loaded_ += end - begin;
    for (int row = begin; row < end; ++row) {
      for (int c = 0; c < problem_.head_dim; ++c) *out++ = values_.at(tensor, seq, head, row, c);
    }
  }
  const Problem& problem_;
  const Values& values_;
  mutable std::atomic<int64_t> keys_loaded_ = 0;
};

struct Result {
  std::vector<double> o, a2, v2, vv;
  double lse = 0.0, p2 = 0.0, p_max = 0.0, score_abs = 0.0, dot_norm = 0.0;
  int64_t keys = -1;
  bool operator==(const Result&) const = default;
};

using Results = std::map<std::array<int, 3>, Result>;  // by seq, pos, head

Results run(const Problem& problem, const Inputs& inputs, const std::vector<RowId>& rows, int num_threads) {
  Results results;
  std::mutex mutex;
  attend(problem, inputs, rows, num_threads, [&](const RowBlock& block) {
    const std::lock_guard lock(mutex);
    const auto d = static_cast<size_t>(problem.head_dim);
    const auto channels = [&](std::span<const double> all, size_t i) {
      const auto row = all.subspan(i * d, d);
      return std::vector<double>(row.begin(), row.end());
    };
    EXPECT_EQ(block.o.size(), block.rows.size() * d);
    for (size_t i = 0; i < block.rows.size(); ++i) {
      const RowId id = block.rows[i];
      const Result result{channels(block.o, i),  channels(block.a2, i), channels(block.v2, i),
                          channels(block.vv, i), block.lse[i],          block.p2[i],
                          block.p_max[i],        block.score_abs[i],    block.dot_norm[i],
                          block.keys[i]};
      EXPECT_TRUE(results.emplace(std::array{id.seq, id.pos, id.head}, result).second) << "a row came twice";
    }
  });
  EXPECT_EQ(results.size(), rows.size());
  return results;
}

// One row by the definitions of reference.h.
Result naive(const Problem& p, const Values& values, const RowId& id) {
  const int d = p.head_dim;
  const int kv_head = id.head / (p.num_heads_q / p.num_heads_kv);
  const int diag = id.pos + p.k_lens[id.seq] - p.q_lens[id.seq];
  const int right = p.causal ? 0 : p.window_right;
  std::vector<int> seen;
  std::vector<long double> score;
  Result result;
  for (int j = 0; j < p.k_lens[id.seq]; ++j) {
    if (p.window_left >= 0 && j < diag - p.window_left) continue;
    if (right >= 0 && j > diag + right) continue;
    long double dot = 0, q2 = 0, k2 = 0;
    for (int c = 0; c < d; ++c) {
      const long double q = values.at(Tensor::kQ, id.seq, id.head, id.pos, c);
      const long double k = values.at(Tensor::kK, id.seq, kv_head, j, c);
      dot += q * k;
      q2 += q * q;
      k2 += k * k;
    }
    long double s = dot * p.softmax_scale;
    if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
    seen.push_back(j);
    score.push_back(s);
    result.score_abs = std::max(result.score_abs, static_cast<double>(std::abs(s)));
    result.dot_norm = std::max(result.dot_norm, static_cast<double>(p.softmax_scale * std::sqrt(q2 * k2)));
  }
  result.keys = static_cast<int64_t>(seen.size());
  result.o.assign(d, 0.0);
  result.a2 = result.v2 = result.vv = result.o;
  result.lse = -kInf;
  if (seen.empty()) return result;
  const long double largest = *std::max_element(score.begin(), score.end());
  long double sum = 0, p2 = 0;
  for (long double s : score) sum += std::exp(s - largest);
  result.lse = static_cast<double>(largest + std::log(sum));
  for (long double& s : score) {
    s = std::exp(s - largest) / sum;
    p2 += s * s;
    result.p_max = std::max(result.p_max, static_cast<double>(s));
  }
  result.p2 = static_cast<double>(p2);
  for (int c = 0; c < d; ++c) {
    long double o = 0, a2 = 0, v2 = 0, vv = 0;
    std::vector<long double> v;
    for (int j : seen) v.push_back(values.at(Tensor::kV, id.seq, kv_head, j, c));
    for (size_t i = 0; i < v.size(); ++i) o += score[i] * v[i];
    for (size_t i = 0; i < v.size(); ++i) {
      a2 += score[i] * score[i] * v[i] * v[i];
      vv += v[i] * v[i];
      v2 += score[i] * score[i] * (v[i] - o) * (v[i] - o);
    }
    result.o[c] = static_cast<double>(o);
    result.a2[c] = static_cast<double>(a2);
    result.v2[c] = static_cast<double>(v2);
    result.vv[c] = static_cast<double>(vv);
  }
  return result;
}

// What the header promises of two ways to compute the same row.
void expect_close(const Result& got, const Result& want, double moment_error) {
  ASSERT_EQ(got.keys, want.keys);
  if (want.keys == 0) {
    EXPECT_EQ(got, want);
    return;
  }
  const double scale = 1.0 + want.score_abs;
  EXPECT_NEAR(got.lse, want.lse, 1e-12 * (1.0 + std::abs(want.lse)));
  EXPECT_NEAR(got.p2, want.p2, 1e-13 * scale * want.p2);
  EXPECT_NEAR(got.p_max, want.p_max, 1e-13 * scale * want.p_max);
  EXPECT_NEAR(got.score_abs, want.score_abs, 1e-13 * scale);
  EXPECT_NEAR(got.dot_norm, want.dot_norm, 1e-13 * want.dot_norm);
  for (size_t c = 0; c < want.o.size(); ++c) {
    // sqrt(keys a2) >= sum p |v|: what the rounding of o is relative to.
    const double magnitude = std::sqrt(static_cast<double>(want.keys) * want.a2[c]);
    EXPECT_NEAR(got.o[c], want.o[c], 1e-13 * scale * magnitude);
    EXPECT_NEAR(got.vv[c], want.vv[c], moment_error * want.vv[c]);
    EXPECT_NEAR(got.a2[c], want.a2[c], moment_error * want.a2[c]);
    EXPECT_NEAR(got.v2[c], want.v2[c], moment_error * (want.v2[c] + want.a2[c]));
  }
}

void expect_close(const Results& got, const Results& want, double moment_error = 2e-6) {
  for (const auto& [id, result] : got) {
    SCOPED_TRACE("seq " + std::to_string(id[0]) + " pos " + std::to_string(id[1]) + " head " +
                 std::to_string(id[2]));
    ASSERT_TRUE(want.contains(id));
    expect_close(result, want.at(id), moment_error);
    if (testing::Test::HasFailure()) return;  // one row tells enough
  }
}

void expect_naive(const Problem& problem, const Values& values, const std::vector<RowId>& rows,
                  int num_threads = 2, double moment_error = 2e-6) {
  const TestInputs inputs(problem, values);
  const Results got = run(problem, inputs, rows, num_threads);
  Results want;
  for (const RowId& id : rows) want[{id.seq, id.pos, id.head}] = naive(problem, values, id);
  expect_close(got, want, moment_error);
}

// A sequence for every pair of a query and a key length.
Problem pairs_of(const std::vector<int>& lens, int head_dim, int heads_q, int heads_kv) {
  Problem p;
  p.head_dim = head_dim;
  p.num_heads_q = heads_q;
  p.num_heads_kv = heads_kv;
  p.softmax_scale = 1.0 / std::sqrt(head_dim);
  for (int q : lens) {
    for (int k : lens) {
      p.q_lens.push_back(q);
      p.k_lens.push_back(k);
    }
  }
  return p;
}

struct Mask {
  bool causal;
  int left, right;
};
const std::vector<Mask> kMasks = {{false, -1, -1}, {true, -1, -1},  {true, 7, -1},
                                  {true, 0, 5},    {false, 0, 0},   {false, 16, 5},
                                  {false, -1, 3},  {false, 70, -1}, {true, 64, -1}};

void set_mask(Problem& p, const Mask& mask) {
  p.causal = mask.causal;
  p.window_left = mask.left;
  p.window_right = mask.right;
}

TEST(ReferenceAttend, MasksAndLengths) {
  for (const Mask& mask : kMasks) {
    SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                    << mask.right);
    Problem p = pairs_of({0, 1, 2, 63, 64, 65, 200}, 3, 2, 1);
    set_mask(p, mask);
    expect_naive(p, {}, all_rows(p));
  }
}

// Windows that leave a long sequence in bands, and blocks that only some rows of a tile see.
TEST(ReferenceAttend, LongSequencesInBands) {
  for (const Mask& mask : kMasks) {
    SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                    << mask.right);
    Problem p;
    p.head_dim = 2;
    p.num_heads_q = p.num_heads_kv = 1;
    p.q_lens = {700, 1300};
    p.k_lens = {1300, 700};
    set_mask(p, mask);
    expect_naive(p, {}, all_rows(p));
  }
}

TEST(ReferenceAttend, HeadDims) {
  for (int head_dim : {1, 2, 3, 64, 72, 128, 256}) {
    for (const Mask& mask : {Mask{false, -1, -1}, Mask{true, 40, -1}}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " causal " << mask.causal);
      Problem p = pairs_of({1, 65, 200}, head_dim, 1, 1);
      set_mask(p, mask);
      expect_naive(p, {}, all_rows(p));
    }
  }
}

TEST(ReferenceAttend, GroupedHeads) {
  for (const auto& [heads_q, heads_kv] : {std::pair{3, 3}, {6, 2}, {7, 1}, {16, 2}}) {
    SCOPED_TRACE(testing::Message() << heads_q << " heads on " << heads_kv);
    Problem p = pairs_of({1, 63, 130}, 8, heads_q, heads_kv);
    p.causal = true;
    expect_naive(p, {}, all_rows(p));
  }
}

TEST(ReferenceAttend, Softcap) {
  for (double cap : {0.5, 20.0}) {
    for (double factor : {1.0, 30.0}) {
      Problem p = pairs_of({2, 65, 200}, 16, 2, 1);
      p.softcap = cap;
      p.causal = true;
      expect_naive(p, {.q_factor = factor}, all_rows(p));
    }
  }
}

TEST(ReferenceAttend, PeakedLogits) {
  for (double factor : {30.0, 3000.0}) {
    Problem p = pairs_of({2, 65, 200}, 64, 2, 1);
    p.causal = true;
    expect_naive(p, {.q_factor = factor}, all_rows(p));
  }
}

// Equal weights and values: every rounding of a float sum may go the same way.
TEST(ReferenceAttend, EqualTerms) {
  for (double value : {0.1, 0.7, 1.3}) {
    Problem p;
    p.head_dim = 2;
    p.num_heads_q = p.num_heads_kv = 1;
    p.q_lens = p.k_lens = {700};
    p.causal = true;
    expect_naive(p, {.q_factor = 0.0, .v_offset = value, .v_spread = 0.0}, all_rows(p), 2, 1e-5);
  }
}

// Values whose squares are outside of float, and values far from 0 beside their spread.
TEST(ReferenceAttend, UnusualValues) {
  for (const Values& values :
       {Values{.v_factor = 1e25}, Values{.v_factor = 1e-25}, Values{.v_offset = 100.0}}) {
    Problem p = pairs_of({2, 65, 200}, 16, 1, 1);
    expect_naive(p, values, all_rows(p));
  }
}

// More keys than a tile may have scores of all its rows.
TEST(ReferenceAttend, LongContext) {
  Problem p;
  p.head_dim = 1;
  p.num_heads_q = p.num_heads_kv = 1;
  p.q_lens = {40};
  p.k_lens = {150001};
  p.causal = true;
  expect_naive(p, {}, all_rows(p), 1);
}

TEST(ReferenceAttend, SomeRowsEqualAllRows) {
  for (const Mask& mask : kMasks) {
    Problem p = pairs_of({1, 64, 700}, 16, 4, 2);
    set_mask(p, mask);
    const Values values;
    const TestInputs inputs(p, values);
    const std::vector<RowId> all = all_rows(p);
    const Results full = run(p, inputs, all, 0);
    std::vector<RowId> some;
    for (size_t i = 0; i < all.size(); i += 1 + i * 7 % 90) some.push_back(all[i]);
    std::reverse(some.begin(), some.end());
    expect_close(run(p, inputs, some, 2), full);
    expect_close(run(p, inputs, {all.back()}, 2), full);
  }
}

TEST(ReferenceAttend, ThreadsDoNotMatter) {
  Problem p = pairs_of({1, 64, 300}, 16, 4, 2);
  p.causal = true;
  const Values values;
  const TestInputs inputs(p, values);
  const std::vector<RowId> rows = all_rows(p);
  const Results one = run(p, inputs, rows, 1);
  EXPECT_EQ(run(p, inputs, rows, 1), one);
  for (int num_threads : {0, 2, 3, 16}) expect_close(run(p, inputs, rows, num_threads), one);
}

TEST(ReferenceAttend, LoadsOnlyWhatIsSeen) {
  Problem p;
  p.head_dim = 4;
  p.num_heads_q = 8;
  p.num_heads_kv = 2;
  p.q_lens = {1000};
  p.k_lens = {1000};
  p.causal = true;
  p.window_left = 9;
  const Values values;
  const TestInputs inputs(p, values);
  // All heads of two distant positions: 10 keys each, once per KV head.
  std::vector<RowId> rows;
  for (int head = 0; head < 8; ++head) {
    rows.push_back({0, 100, head});
    rows.push_back({0, 900, head});
  }
  run(p, inputs, rows, 1);
  EXPECT_EQ(inputs.keys_loaded(), 2 * 2 * 10);
}

// A packed batch is its sequences: nothing of one reaches another.
TEST(ReferenceAttend, PackedEqualsSeparate) {
  Problem packed;
  packed.head_dim = 2;
  packed.num_heads_q = packed.num_heads_kv = 2;
  packed.q_lens = packed.k_lens = {1, 2, 3, 4};
  for (bool causal : {false, true}) {
    packed.causal = causal;
    const Values values;
    const TestInputs inputs(packed, values);
    const Results together = run(packed, inputs, all_rows(packed), 2);
    ASSERT_EQ(together.size(), 20u);
    for (int seq = 0; seq < 4; ++seq) {
      Problem alone = packed;
      alone.q_lens = alone.k_lens = {packed.q_lens[seq]};
      const Values same{.names = {seq}};
      const TestInputs alone_inputs(alone, same);
      for (const auto& [id, result] : run(alone, alone_inputs, all_rows(alone), 2)) {
        EXPECT_EQ(result, together.at({seq, id[1], id[2]}));
      }
    }
  }
}

// By hand: scores 0 and ln 3, so p = 1/4, 3/4; v = 4, 8.
TEST(ReferenceAttend, ByHand) {
  class Two : public Inputs {
   public:
    void load_q(int, int, int, int, double* out) const override { out[0] = 1.0; }
    void load_k(int, int, int begin, int end, double* out) const override {
      for (int j = begin; j < end; ++j) *out++ = j == 0 ? 0.0 : 2.0 * std::log(3.0);
    }
    void load_v(int, int, int begin, int end, double* out) const override {
      for (int j = begin; j < end; ++j) *out++ = 4.0 * (j + 1);
    }
  };
  Problem p;
  p.head_dim = p.num_heads_q = p.num_heads_kv = 1;
  p.q_lens = {1};
  p.k_lens = {2};
  p.softmax_scale = 0.5;
  const Results results = run(p, Two(), all_rows(p), 1);
  const Result& row = results.at({0, 0, 0});
  EXPECT_NEAR(row.o[0], 7.0, 1e-14);
  EXPECT_NEAR(row.lse, std::log(4.0), 1e-15);
  EXPECT_NEAR(row.p2, 10.0 / 16.0, 1e-15);
  EXPECT_NEAR(row.a2[0], 37.0, 1e-5);
  EXPECT_NEAR(row.v2[0], 9.0 / 16.0 + 9.0 / 16.0, 1e-4);
  EXPECT_NEAR(row.vv[0], 16.0 + 64.0, 1e-3);
  EXPECT_NEAR(row.p_max, 0.75, 1e-15);
  EXPECT_NEAR(row.score_abs, std::log(3.0), 1e-15);
  EXPECT_NEAR(row.dot_norm, std::log(3.0), 1e-15);
  EXPECT_EQ(row.keys, 2);
}

}  // namespace
}  // namespace attnbench::reference
