// Attention by plain loops in long double, written only from the definitions in reference.h, and functions
// that compare the reference with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/contract/dropout.h"
#include "reference/reference.h"

namespace attnbench::reference {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

enum class Tensor : uint64_t { kQ = 1, kK = 2, kV = 3, kQv = 4 };

// Approximately normal values, which depend only on the coordinate. A sequence is identified by its name, so
// that several problems can share one.
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
    double sum = 0.0;  // sum of four uniform 16-bit numbers: exact
    for (int i = 0; i < 4; ++i) sum += static_cast<double>((x >> (16 * i)) & 0xffff) / 65536.0 - 0.5;
    sum *= 1.7;
    if (tensor == Tensor::kQ) return sum * q_factor;
    if (tensor == Tensor::kV) return (sum * v_spread + v_offset) * v_factor;
    return sum;
  }
};

// Returns values, and fails if rows are requested that do not exist.
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
  void load_qv(int seq, int head, int begin, int end, double* out) const override {
    EXPECT_LE(end, problem_.q_lens[seq]);
    EXPECT_LT(head, problem_.num_heads_q);
    write(Tensor::kQv, seq, head, begin, end, out);
  }
  int64_t keys_loaded() const { return keys_loaded_; }

 private:
  void write(Tensor tensor, int seq, int head, int begin, int end, double* out) const {
    EXPECT_LE(0, begin);
    EXPECT_LT(begin, end);
    if (tensor == Tensor::kK) keys_loaded_ += end - begin;
    const bool of_values = tensor == Tensor::kV || tensor == Tensor::kQv;
    const int width = of_values ? problem_.value_dim() : problem_.head_dim;
    for (int row = begin; row < end; ++row) {
      for (int c = 0; c < width; ++c) *out++ = values_.at(tensor, seq, head, row, c);
    }
  }
  const Problem& problem_;
  const Values& values_;
  mutable std::atomic<int64_t> keys_loaded_ = 0;
};

struct Result {
  std::vector<double> o, a2, v2, vv, mean;
  double lse = 0.0, w2 = 0.0, w4 = 0.0, p_max = 0.0, score_abs = 0.0, dot_norm = 0.0;
  int64_t keys = -1;
  std::vector<double> probs;  ///< for every key of the sequence, if requested
  bool operator==(const Result&) const = default;
};

using Results = std::map<std::array<int, 3>, Result>;  // by seq, pos, head

inline Results run(const Problem& problem, const Inputs& inputs, const std::vector<RowId>& rows,
                   int num_threads) {
  Results results;
  std::mutex mutex;
  attend(problem, inputs, rows, num_threads, [&](const RowBlock& block) {
    const std::lock_guard lock(mutex);
    const auto d = static_cast<size_t>(problem.value_dim());
    const auto channels = [&](std::span<const double> all, size_t i) {
      const auto row = all.subspan(i * d, d);
      return std::vector<double>(row.begin(), row.end());
    };
    EXPECT_EQ(block.o.size(), block.rows.size() * d);
    for (size_t i = 0; i < block.rows.size(); ++i) {
      const RowId id = block.rows[i];
      Result result{channels(block.o, i),
                    channels(block.a2, i),
                    channels(block.v2, i),
                    channels(block.vv, i),
                    channels(block.mean, i),
                    block.lse[i],
                    block.w2[i],
                    block.w4[i],
                    block.p_max[i],
                    block.score_abs[i],
                    block.dot_norm[i],
                    block.keys[i],
                    {}};
      if (problem.probs) {
        result.probs.assign(static_cast<size_t>(problem.k_lens[id.seq]), 0.0);
        const auto p = block.probs.subspan(i * static_cast<size_t>(block.key_count),
                                           static_cast<size_t>(block.key_count));
        std::copy(p.begin(), p.end(), result.probs.begin() + block.key_begin);
      }
      EXPECT_TRUE(results.emplace(std::array{id.seq, id.pos, id.head}, result).second) << "a row came twice";
    }
  });
  EXPECT_EQ(results.size(), rows.size());
  return results;
}

// One row by the definitions of reference.h.
inline Result naive(const Problem& p, const Values& values, const RowId& id) {
  const int d = p.head_dim;
  const int kv_head = id.head / (p.num_heads_q / p.num_heads_kv);
  const int diag = id.pos + (p.top_left ? 0 : p.k_lens[id.seq] - p.q_lens[id.seq]);
  const int right = p.causal ? 0 : p.window_right;
  const bool slope_per_head = p.alibi_slopes.size() == static_cast<size_t>(p.num_heads_q);
  const double sink = p.sinks.empty() ? -kInf : p.sinks[id.head];
  std::vector<int> seen;
  std::vector<long double> score;
  Result result;
  for (int j = 0; j < p.k_lens[id.seq]; ++j) {
    if (!p.k_ends.empty() && j >= p.k_ends[id.seq]) continue;
    if (p.sees && !p.sees(id.seq, id.pos, id.head, j)) continue;
    if (p.window_left >= 0 && j < diag - p.window_left) continue;
    if (right >= 0 && j > diag + right) continue;
    if (p.attention_chunk > 0 && (diag < 0 || j / p.attention_chunk != diag / p.attention_chunk)) continue;
    long double dot = 0, q2 = 0, k2 = 0;
    for (int c = 0; c < d; ++c) {
      const long double q = values.at(Tensor::kQ, id.seq, id.head, id.pos, c);
      const long double k = values.at(Tensor::kK, id.seq, kv_head, j, c);
      dot += q * k;
      q2 += q * q;
      k2 += k * k;
    }
    for (int c = 0; p.qv && c < p.value_dim(); ++c) {
      const long double q = values.at(Tensor::kQv, id.seq, id.head, id.pos, c);
      const long double v = values.at(Tensor::kV, id.seq, kv_head, j, c);
      dot += q * v;
      q2 += q * q;
      k2 += v * v;
    }
    long double s = dot * p.softmax_scale;
    if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
    if (!p.alibi_slopes.empty()) {
      const long double distance = std::abs(diag - j);
      s -= p.alibi_slopes[slope_per_head ? id.head : id.seq * p.num_heads_q + id.head] *
           (p.alibi_sqrt ? std::sqrt(distance) : distance);
    }
    seen.push_back(j);
    score.push_back(s);
    result.dot_norm = std::max(result.dot_norm, static_cast<double>(p.softmax_scale * std::sqrt(q2 * k2)));
  }
  result.keys = static_cast<int64_t>(seen.size());
  result.o.assign(p.value_dim(), 0.0);
  result.a2 = result.v2 = result.vv = result.mean = result.o;
  result.lse = sink;
  if (p.probs) result.probs.assign(static_cast<size_t>(p.k_lens[id.seq]), 0.0);
  if (seen.empty()) return result;
  const auto [least, top] = std::minmax_element(score.begin(), score.end());
  const long double lowest = std::max(*least, *top - 28);
  // Under dropout reference.h also promises scores within 28 of the largest kept one, which may be lower: left out
  // here. Tests that compare it drop no weights of scores so far apart.
  result.score_abs = static_cast<double>(std::max(std::abs(*top), std::abs(lowest)));
  if (sink >= *top - 28) result.score_abs = std::max(result.score_abs, std::abs(sink));
  const long double largest = std::max<long double>(*top, sink);
  long double sum = std::exp(sink - largest);
  for (long double s : score) sum += std::exp(s - largest);
  result.lse = static_cast<double>(largest + std::log(sum));
  std::vector<long double> weight;  // factors of the values, where e = exp(score - largest score)
  for (long double s : score) weight.push_back(std::exp(s - *top));
  for (long double& s : score) {
    s = std::exp(s - largest) / sum;
    result.p_max = std::max(result.p_max, static_cast<double>(s));
  }
  int64_t token = id.pos;
  for (int b = 0; b < id.seq; ++b) token += p.q_lens[b];
  long double w_sum = 0, w_squares = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (p.probs) result.probs[seen[i]] = static_cast<double>(score[i]);
    long double e = weight[i];
    weight[i] = score[i];
    if (p.p_dropout > 0) {
      const bool kept = dropout_keeps(p.dropout_seed, p.dropout_offset, id.head, token, seen[i],
                                      dropout_threshold(p.p_dropout));
      weight[i] = kept ? score[i] * dropout_scale(p.p_dropout) : 0.0L;
      if (!kept) e = 0;
    }
    w_sum += e;
    w_squares += e * e;
  }
  result.w2 = w_sum > 0 ? static_cast<double>(w_squares / (w_sum * w_sum)) : 0.0;
  long double carried = 0, squares = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    long double norm2 = 0;
    for (int c = 0; c < p.value_dim(); ++c) {
      const long double v = values.at(Tensor::kV, id.seq, kv_head, seen[i], c);
      norm2 += v * v;
    }
    carried += weight[i] * weight[i] * norm2;
    squares += weight[i] * weight[i] * norm2 * weight[i] * weight[i] * norm2;
  }
  result.w4 = carried > 0 ? static_cast<double>(squares / (carried * carried)) : 0.0;
  for (int c = 0; c < p.value_dim(); ++c) {
    long double o = 0, a2 = 0, v2 = 0, vv = 0, v_sum = 0;
    std::vector<long double> v;
    for (int j : seen) v.push_back(values.at(Tensor::kV, id.seq, kv_head, j, c));
    for (size_t i = 0; i < v.size(); ++i) o += weight[i] * v[i];
    for (size_t i = 0; i < v.size(); ++i) {
      a2 += weight[i] * weight[i] * v[i] * v[i];
      vv += v[i] * v[i];
      v_sum += v[i];
      v2 += (weight[i] * v[i] - score[i] * o) * (weight[i] * v[i] - score[i] * o);
    }
    result.o[c] = static_cast<double>(o);
    result.a2[c] = static_cast<double>(a2);
    result.v2[c] = static_cast<double>(v2);
    result.vv[c] = static_cast<double>(vv);
    result.mean[c] = static_cast<double>(v_sum / static_cast<long double>(v.size()));
  }
  return result;
}

// What the header promises about two ways to compute the same row.
inline void expect_close(const Result& got, const Result& want, double moment_error) {
  ASSERT_EQ(got.keys, want.keys);
  if (want.keys == 0) {
    EXPECT_EQ(got, want);
    return;
  }
  const double scale = 1.0 + want.score_abs;
  EXPECT_NEAR(got.lse, want.lse, 1e-12 * (1.0 + std::abs(want.lse)));
  EXPECT_NEAR(got.w2, want.w2, 1e-12 * scale * want.w2);
  if (want.w4 > 0.0) {  // 0 if all weights underflow next to a sink
    EXPECT_NEAR(got.w4, want.w4, 1e-5 * want.w4);
  }
  ASSERT_EQ(got.probs.size(), want.probs.size());
  for (size_t j = 0; j < want.probs.size(); ++j) {
    EXPECT_NEAR(got.probs[j], want.probs[j], 1e-13 * scale * want.probs[j]);
  }
  EXPECT_NEAR(got.p_max, want.p_max, 1e-13 * scale * want.p_max);
  EXPECT_NEAR(got.score_abs, want.score_abs, 1e-13 * scale);
  EXPECT_NEAR(got.dot_norm, want.dot_norm, 1e-13 * want.dot_norm);
  for (size_t c = 0; c < want.o.size(); ++c) {
    // sqrt(keys a2) >= sum p |v|, and the rounding error of o is relative to this sum.
    const double magnitude = std::sqrt(static_cast<double>(want.keys) * want.a2[c]);
    EXPECT_NEAR(got.o[c], want.o[c], 1e-13 * scale * magnitude);
    EXPECT_NEAR(got.vv[c], want.vv[c], moment_error * want.vv[c]);
    EXPECT_NEAR(got.mean[c], want.mean[c],
                moment_error * std::sqrt(want.vv[c] / static_cast<double>(want.keys)));
    EXPECT_NEAR(got.a2[c], want.a2[c], moment_error * want.a2[c]);
    EXPECT_NEAR(got.v2[c], want.v2[c], moment_error * (want.v2[c] + want.a2[c]));
  }
}

inline void expect_close(const Results& got, const Results& want, double moment_error = 2e-6) {
  for (const auto& [id, result] : got) {
    SCOPED_TRACE("seq " + std::to_string(id[0]) + " pos " + std::to_string(id[1]) + " head " +
                 std::to_string(id[2]));
    ASSERT_TRUE(want.contains(id));
    expect_close(result, want.at(id), moment_error);
    if (testing::Test::HasFailure()) return;  // one failed row is enough
  }
}

inline void expect_naive(const Problem& problem, const Values& values, const std::vector<RowId>& rows,
                         int num_threads = 2, double moment_error = 2e-6) {
  const TestInputs inputs(problem, values);
  const Results got = run(problem, inputs, rows, num_threads);
  Results want;
  for (const RowId& id : rows) want[{id.seq, id.pos, id.head}] = naive(problem, values, id);
  expect_close(got, want, moment_error);
}

// A sequence for every pair of a query and a key length.
inline Problem pairs_of(const std::vector<int>& lens, int head_dim, int heads_q, int heads_kv) {
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
  int chunk = 0;
  bool top_left = false;
};
inline const std::vector<Mask> kMasks = {
    {false, -1, -1},       {true, -1, -1},     {true, 7, -1},       {true, 0, 5},
    {false, 0, 0},         {false, 16, 5},     {false, -1, 3},      {false, 70, -1},
    {true, 64, -1},        {false, -1, -1, 1}, {false, -1, -1, 37}, {true, -1, -1, 16},
    {true, -1, -1, 64},    {true, 20, -1, 50}, {false, 5, 9, 12},   {true, -1, -1, 0, true},
    {true, 7, -1, 0, true}};

inline void set_mask(Problem& p, const Mask& mask) {
  p.causal = mask.causal;
  p.window_left = mask.left;
  p.window_right = mask.right;
  p.attention_chunk = mask.chunk;
  p.top_left = mask.top_left;
}

}  // namespace attnbench::reference
