#include "harness/judge/rounded_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <utility>

#include "harness/judge/misread.h"
#include "kernels/contract/dtype.h"

namespace attnbench {
namespace {

/// The share of the squared error that may be left where an intermediate is rounded as the kernel does it.
constexpr double kMostLeft = 0.2;
constexpr std::size_t kFewestLse = 8;  ///< rows; fewer of their LSEs may fit by chance

double rounded(DType to, double x) {
  unsigned char bytes[sizeof(float)] = {};
  store_float(to, bytes, 0, static_cast<float>(x));
  return static_cast<double>(load_float(to, bytes, 0));
}

/// A softmax that rounds one thing.
struct Softmax {
  DType to = DType::kFp32;
  double scores = 0;  ///< scores are rounded as multiples of 1 / this; 0: they are not rounded
  int block = 0;  ///< P is rounded, relative to the greatest score up to the end of its block of so many keys
  bool sum = false;                    ///< the denominator has rounded P, too
  bool normalised = false, o = false;  ///< P is rounded when it is normalised; O is rounded
  int summed = 0;  ///< what is summed in O so far is rounded at the end of each block of so many keys
};

struct OfRounding {
  std::vector<double> o;
  double lse = 0;
};

/// O of a running sum, relative to the greatest score so far, that is rounded after each block.
void sum_rounded(const Softmax& s, const ScoredRow& row, std::span<const double> scores, double sum,
                 std::vector<double>& o) {
  const double top = *std::ranges::max_element(scores);
  double running = -INFINITY;
  std::ranges::fill(o, 0.0);
  for (std::size_t j = 0, end = 0; j < scores.size(); j = end) {
    const int64_t block = (row.first + static_cast<int64_t>(j)) / s.summed;
    for (end = j; end < scores.size() && (row.first + static_cast<int64_t>(end)) / s.summed == block;) ++end;
    const double before = running;
    for (std::size_t n = j; n < end; ++n) running = std::max(running, scores[n]);
    if (running == -INFINITY) continue;
    for (std::size_t c = 0; c < o.size(); ++c) {
      o[c] *= std::exp(before - running);
      for (std::size_t n = j; n < end; ++n) {
        if (scores[n] > -INFINITY) o[c] += std::exp(scores[n] - running) * row.values[n * o.size() + c];
      }
      o[c] = rounded(s.to, o[c]);
    }
  }
  for (double& x : o) x *= std::exp(running - top) / sum;
}

OfRounding computed(const Softmax& s, const ScoredRow& row) {
  const std::size_t d = row.row->out.size(), keys = row.scores.size();
  std::vector<double> scores = row.scores, weights(keys);
  for (double& x : scores)
    if (s.scores != 0 && std::isfinite(x)) x = rounded(s.to, x * s.scores) / s.scores;
  const double top = *std::ranges::max_element(scores);
  OfRounding result{std::vector<double>(d), 0};
  double sum = 0, running = -INFINITY;
  const auto block_of = [&](std::size_t j) { return (row.first + static_cast<int64_t>(j)) / s.block; };
  for (std::size_t j = 0; j < keys; ++j) {
    const bool begins = s.block > 0 && (j == 0 || block_of(j) != block_of(j - 1));
    for (std::size_t n = j; begins && n < keys && block_of(n) == block_of(j); ++n)
      running = std::max(running, scores[n]);
    const double exact = std::exp(scores[j] - top);
    weights[j] = exact == 0     ? 0
                 : s.block == 0 ? exact
                                : rounded(s.to, std::exp(scores[j] - running)) * std::exp(running - top);
    sum += s.sum ? weights[j] : exact;
  }
  for (std::size_t j = 0; j < keys; ++j) {
    if (weights[j] == 0) continue;  // values of keys that are not seen may be NaN
    const double p = s.normalised ? rounded(s.to, weights[j] / sum) : weights[j] / sum;
    for (std::size_t c = 0; c < d; ++c) result.o[c] += p * row.values[j * d + c];
  }
  if (s.summed > 0) sum_rounded(s, row, scores, sum, result.o);
  if (s.o)
    for (double& x : result.o) x = rounded(s.to, x);
  result.lse = top + std::log(sum);
  return result;
}

/// Squared errors of O, in units of the rows' lengths, and of the LSE.
struct ErrorLeft {
  double o = 0, lse = 0;
};

class Roundings {
 public:
  /// `noise`: of O that is stored, a row's.
  Roundings(bool in_o, bool in_lse, std::span<const ScoredRow> right, double noise)
      : in_o_(in_o),
        in_lse_(in_lse),
        error_(error({}, right)),
        noise_(noise * static_cast<double>(right.size())) {}

  /// Whether the error is too small beside the rounding of O.
  bool blurred() const { return in_o_ && !(error_.o > 3 * noise_); }

  void offer(const char* what, DType to, const Softmax& s, std::span<const ScoredRow> rows) {
    const ErrorLeft left = error(s, rows);
    if (!std::isfinite(left.o + left.lse)) return;
    const double o = in_o_ ? std::max(0.0, left.o - 1.5 * noise_) / (error_.o - noise_) : 0,
                 lse = in_lse_ ? left.lse / error_.lse : 0;
    if (!(o <= kMostLeft && lse <= kMostLeft)) return;
    auto [at, is_new] = found_.emplace(fmt::format("{} rounded to {}", what, dtype_name(to)), o + lse);
    if (!is_new) at->second = std::min(at->second, o + lse);
  }

  /// Those that leave about as little of the error as the best one.
  std::vector<std::string> best() const {
    double least = INFINITY;
    for (const auto& [text, left] : found_) least = std::min(least, left);
    std::vector<std::string> out;
    for (const auto& [text, left] : found_)
      if (left <= 2 * least + 0.02) out.push_back(text);
    return out;
  }

 private:
  static ErrorLeft error(const Softmax& s, std::span<const ScoredRow> rows) {
    ErrorLeft sum;
    for (const ScoredRow& row : rows) {
      const OfRounding wrong = computed(s, row);
      double error2 = 0, size2 = 0;
      for (std::size_t c = 0; c < wrong.o.size(); ++c) {
        error2 += (row.row->out[c] - wrong.o[c]) * (row.row->out[c] - wrong.o[c]);
        size2 += wrong.o[c] * wrong.o[c];
      }
      sum.o += size2 == 0 ? 0 : error2 / size2;  // NaN explains nothing
      sum.lse += (row.row->lse - wrong.lse) * (row.row->lse - wrong.lse);
    }
    return sum;
  }

  bool in_o_, in_lse_;
  ErrorLeft error_;
  double noise_;
  std::map<std::string, double> found_;  ///< the share of the error that is left
};

}  // namespace

std::vector<std::string> rounded_parts(const Launched& launched, const reference::Problem& problem,
                                       const reference::Inputs& inputs, std::span<const WrongRow> rows,
                                       bool in_o, bool in_lse, int num_threads) {
  const CaseParams& p = launched.item.params;
  const bool few = in_o ? rows.size() * static_cast<std::size_t>(p.dim_v()) < 64 : rows.size() < kFewestLse;
  if (few || p.sinks || p.dropout > 0) return {};
  const std::vector<ScoredRow> right = scored_rows(problem, inputs, rows, num_threads);
  const double u = unit_roundoff(p.type_of_out());  // numbers of random mantissas
  Roundings search(in_o, in_lse, right, u * u / 7);
  if (search.blurred()) return {};
  const double scale = problem.softmax_scale, log2e = std::numbers::log2e;
  std::vector<int> blocks = {INT32_MAX, 16, 32, 64, 128};
  if (p.kv == KvSource::kPaged) blocks.push_back(p.block_size);
  for (const DType to : {DType::kBf16, DType::kFp16, DType::kE4m3}) {
    if (to != DType::kE4m3) {
      for (const double factor : {1.0, 1 / scale, log2e})
        search.offer("scores are", to, {.to = to, .scores = factor}, right);
      search.offer("O is", to, {.to = to, .o = true}, right);
      for (const int block : {16, 32, 64, 128})
        search.offer(fmt::format("the sum of P V so far, after each {} keys, is", block).c_str(), to,
                     {.to = to, .summed = block}, right);
    }
    search.offer("P is", to, {.to = to, .normalised = true}, right);
    for (const int block : blocks) {
      for (const bool sum : {false, true})
        search.offer("P is", to, {.to = to, .block = block, .sum = sum}, right);
    }
    const auto input = [&](const char* what, Tensor tensor, double factor) {
      const Misread misread(problem, inputs, {.change = [&](Tensor of, int, int, int, std::span<double> row) {
                              for (double& x : row)
                                if (of == tensor && std::isfinite(x)) x = rounded(to, x * factor) / factor;
                            }});
      search.offer(what, to, {}, scored_rows(problem, misread, rows, num_threads));
    };
    for (const double factor : {1.0, scale, scale * log2e}) input("q is", Tensor::kQ, factor);
    input("K is", Tensor::kK, 1);
    input("V is", Tensor::kV, 1);
  }
  return search.best();
}

}  // namespace attnbench
