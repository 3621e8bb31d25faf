#include "harness/judge/missing_rescale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/contract/dtype.h"

namespace attnbench {
namespace {

/// How a kernel goes through blocks of keys.
struct Order {
  int block;
  bool backwards;
};

/// O and LSE of a row.
struct Result {
  std::vector<double> o;
  double lse;
};

/// What comes of `order` without rescaling; with one block of all keys, the right result.
Result not_rescaled(const Order& order, const ScoredRow& s) {
  const std::size_t d = s.row->out.size(), keys = s.scores.size();
  const auto block_of = [&](std::size_t j) { return (s.first + static_cast<int64_t>(j)) / order.block; };
  Result result{std::vector<double>(d), 0};
  double maximum = -INFINITY, sum = 0;
  for (std::size_t done = 0; done < keys;) {
    // The next block is [from, to), the last one first if backwards.
    std::size_t from = order.backwards ? keys - done - 1 : done, to = from + 1;
    while (!order.backwards && to < keys && block_of(to) == block_of(from)) ++to;
    while (order.backwards && from > 0 && block_of(from - 1) == block_of(to - 1)) --from;
    done += to - from;
    for (std::size_t j = from; j < to; ++j) maximum = std::max(maximum, s.scores[j]);
    if (maximum == -INFINITY) continue;
    for (std::size_t j = from; j < to; ++j) {
      const double weight = std::exp(s.scores[j] - maximum);
      if (weight == 0) continue;  // values of keys that are not seen may be NaN
      sum += weight;
      for (std::size_t c = 0; c < d; ++c) result.o[c] += weight * s.values[j * d + c];
    }
  }
  for (double& o : result.o) o /= sum;
  result.lse = maximum + std::log(sum);
  return result;
}

/// Whether two results are equal but for `roundings` roundings of O's type, and a little of the LSE.
bool alike(const std::vector<double>& o, double lse, const Result& expected, double roundings) {
  if (!(std::abs(expected.lse - lse) <= 0.01)) return false;
  double error2 = 0, size2 = 0;
  for (std::size_t c = 0; c < o.size(); ++c) {
    error2 += (o[c] - expected.o[c]) * (o[c] - expected.o[c]);
    size2 += expected.o[c] * expected.o[c];
  }
  return error2 <= roundings * roundings * size2;
}

/// Whether all rows are as `order` leaves them, and most of them clearly not as they should be: an error as small as
/// that of rounding fits any order that changes little.
bool explains(const Order& order, std::span<const ScoredRow> rows, double roundoff) {
  std::size_t changed = 0;
  for (const ScoredRow& s : rows) {
    const Result wrong = not_rescaled(order, s), right = not_rescaled({INT32_MAX, false}, s);
    if (!alike(s.row->out, s.row->lse, wrong, 8 * roundoff)) return false;
    changed += !alike(wrong.o, wrong.lse, right, 16 * roundoff);
  }
  return 2 * changed > rows.size();
}

}  // namespace

std::optional<std::string> missing_rescale(const CaseParams& p, const reference::Problem& problem,
                                           const reference::Inputs& inputs, std::span<const WrongRow> rows,
                                           int num_threads) {
  const double roundoff = unit_roundoff(p.type_of_out());
  // With few channels a wrong row may fit by chance. A sink is in no block, and dropped weights have no score.
  if (rows.empty() || std::pow(16 * roundoff, p.dim_v()) > 1e-6 || p.sinks || p.dropout > 0)
    return std::nullopt;
  const std::vector<ScoredRow> all = scored_rows(problem, inputs, rows, num_threads);
  std::vector<int> blocks = {1, 8, 16, 32, 64, 128, 256};
  if (p.kv == KvSource::kPaged) blocks.insert(blocks.begin(), p.block_size);
  for (const int block : blocks) {
    for (const bool backwards : {false, true}) {
      const Order order{block, backwards};
      if (!explains(order, all, roundoff)) continue;
      return fmt::format("neither O nor the sum is rescaled when {} raises the maximum",
                         block == 1  ? "a key"
                         : backwards ? fmt::format("a block of {} keys before those summed so far", block)
                                     : fmt::format("a later block of {} keys", block));
    }
  }
  return std::nullopt;
}

}  // namespace attnbench
