#include "harness/judge/row_findings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <tuple>

#include "harness/judge/bitwise.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/stored_out.h"
#include "kernels/contract/dropout.h"

namespace attnbench {
namespace {

constexpr int kLeastChannelsOfAFactor = 8;
constexpr double kFraction =
    1.01;  ///< what a conversion to an integer takes from a number, and a rounding error

/// The kernel's row, the expected one, and the standard deviation of each channel.
struct Row {
  std::vector<double> got, expected, sigma;
};

/// The length of got - expected over that of expected; 0 if that is 0.
double relative_error(const Row& row) {
  double error2 = 0, size2 = 0;
  for (std::size_t c = 0; c < row.got.size(); ++c) {
    error2 += (row.got[c] - row.expected[c]) * (row.got[c] - row.expected[c]);
    size2 += row.expected[c] * row.expected[c];
  }
  return size2 > 0 ? std::sqrt(error2 / size2) : 0;
}

/// Returns f if got = f * expected in every channel, within the tolerance; else 0.
double common_factor(const Row& row) {
  double xy = 0, xx = 0;
  for (std::size_t c = 0; c < row.got.size(); ++c) {
    const double weight = 1 / (row.sigma[c] * row.sigma[c]);
    xy += weight * row.got[c] * row.expected[c];
    xx += weight * row.expected[c] * row.expected[c];
  }
  const double f = xx > 0 ? xy / xx : 0;
  if (row.got.size() < kLeastChannelsOfAFactor || !std::isfinite(f) || f == 0) return 0;
  for (std::size_t c = 0; c < row.got.size(); ++c) {
    const double z = (row.got[c] - f * row.expected[c]) / row.sigma[c];
    if (!(std::abs(z) <= kMaxZ * std::max(1.0, std::abs(f)))) return 0;
  }
  return f;
}

}  // namespace

bool match_by_zeros(const Launched& launched, std::span<const RowFinding> rows) {
  return std::ranges::all_of(rows, [](const RowFinding& r) { return r.keys == 0; }) &&
         (launched.outputs.no_lse ||
          std::ranges::any_of(rows, [](const RowFinding& r) { return r.wrong_lse; }));
}

RowMoments moments_of(const reference::RowBlock& block, std::size_t r, const CaseInputs& inputs) {
  const reference::RowId id = block.rows[r];
  return {.lse = block.lse[r],
          .w2 = block.w2[r],
          .p_max = block.p_max[r],
          .score_abs = block.score_abs[r],
          .dot_norm = block.dot_norm[r],
          .keys = block.keys[r],
          .q_error = inputs.q_error(id.seq, id.head, id.pos),
          .w4 = block.w4[r]};
}

ErrorModel error_model_of(const Case& c, const Numerics& numerics) {
  const CaseParams& p = c.params;
  const int32_t products = p.head_dim + (p.qv ? p.dim_v() : 0);  // of a score
  return ErrorModel(numerics, p.type_of_out(), products, p.softcap,
                    dropout_scale(static_cast<float>(p.dropout)), p.dim_v(), out_scale_of(c));
}

std::vector<RowFinding> find_rows(const Launched& launched, const reference::Problem& problem,
                                  const reference::Inputs& inputs, std::span<const reference::RowId> rows,
                                  int num_threads) {
  const CaseParams& p = launched.item.params;
  const HostOutputs& outputs = launched.outputs;
  const ErrorModel model = error_model_of(launched.item, launched.numerics);
  const StoredOut stored(launched.item);
  const CaseInputs own(launched.item, outputs.new_k, &outputs.new_v);
  const std::vector<int64_t> q_begin = q_begins(p);
  const int64_t total_q = q_begin.back();
  const auto d = static_cast<std::size_t>(p.dim_v());

  const auto judge = [&](const reference::RowBlock& block, std::size_t r) {
    RowFinding f;
    f.id = block.rows[r];
    f.keys = block.keys[r];
    const int64_t token = q_begin[static_cast<std::size_t>(f.id.seq)] + f.id.pos;
    f.expected_lse = block.lse[r];
    f.lse = f.expected_lse;
    if (!outputs.no_lse) {
      const float lse = outputs.lse[static_cast<std::size_t>(f.id.head * total_q + token)];
      f.lse = static_cast<double>(lse);
      f.unwritten = std::bit_cast<uint32_t>(lse) == ~uint32_t{0};
    }
    const RowMoments m = moments_of(block, r, own);
    Row row;
    double z2 = 0;
    bool any_nan = false;
    CommonShares shares;
    const std::size_t size = dtype_size(stored.type);
    f.integers = size == sizeof(int16_t);
    for (std::size_t c = 0; c < d; ++c) {
      const auto at =
          static_cast<int64_t>((token * p.num_heads_q + f.id.head) * p.dim_v()) + static_cast<int64_t>(c);
      const double got = stored.value(outputs.out, at);
      const std::size_t b = r * d + c;
      const double o = stored.reachable(block.o[b]);
      double sigma = model.sigma(m, o, block.a2[b], block.v2[b], block.vv[b]);
      if (!outputs.extra_variance.empty())
        sigma = std::hypot(sigma, std::sqrt(outputs.extra_variance[static_cast<std::size_t>(at)]));
      const double z = m.keys > 0 ? (got - o) / sigma : got == 0 ? 0 : INFINITY;
      f.nan = f.nan || !std::isfinite(got);
      any_nan = any_nan || std::isnan(got);
      f.zero = f.zero && got == 0;
      const auto element = std::span(outputs.out).subspan(static_cast<std::size_t>(at) * size, size);
      f.blank = f.blank && std::ranges::all_of(element, [](unsigned char byte) { return byte == 0xff; });
      if (f.integers) {
        int16_t bits = 0;
        std::memcpy(&bits, outputs.out.data() + at * static_cast<int64_t>(sizeof bits), sizeof bits);
        f.integers = std::abs(bits - block.o[r * d + c]) <= kFraction;
      }
      z2 += z * z;
      const double part = 1.0 / (sigma * sigma * static_cast<double>(d));
      shares.logits += part * model.logit_variance(m, block.a2[b], block.v2[b]);
      shares.denominator += part * model.denominator_variance(m, o);
      if (!(std::abs(z) <= kMaxZ)) {
        if (f.wrong_channels++ == 0) f.first_channel = static_cast<int>(c);
        f.last_channel = static_cast<int>(c);
        f.wrong_not_zero += got != 0;
        if (got == 0) f.largest_wrong_zero = std::max(f.largest_wrong_zero, std::abs(o));
      }
      if (got != 0) f.least_not_zero = std::min(f.least_not_zero, std::abs(o));
      row.got.push_back(got);
      row.expected.push_back(o);
      row.sigma.push_back(sigma);
    }
    f.mean_z2 = z2 / static_cast<double>(d);
    f.relative = relative_error(row);
    f.wrong_o = f.wrong_channels > 0 || (m.keys > 0 && !(f.mean_z2 <= model.row_limit(m, shares)));
    if (f.wrong_o && m.keys > 0) f.factor = common_factor(row);
    if (std::isfinite(m.lse)) {
      f.wrong_lse = !(std::abs(f.lse - m.lse) <= kMaxZ * std::max(model.sigma_lse(m), 0x1p-22));
    } else {
      f.wrong_lse = f.lse != m.lse;
    }
    f.nan = f.nan || std::isnan(f.lse);
    f.inf = f.nan && !any_nan && !std::isnan(f.lse);
    return f;
  };

  std::vector<RowFinding> out;
  std::mutex mutex;
  reference::attend(problem, inputs, rows, num_threads, [&](const reference::RowBlock& block) {
    std::vector<RowFinding> found;
    for (std::size_t r = 0; r < block.rows.size(); ++r) found.push_back(judge(block, r));
    const std::lock_guard lock(mutex);
    out.insert(out.end(), found.begin(), found.end());
  });
  std::ranges::sort(out, [](const RowFinding& a, const RowFinding& b) {
    return std::tie(a.id.seq, a.id.pos, a.id.head) < std::tie(b.id.seq, b.id.pos, b.id.head);
  });
  return out;
}

}  // namespace attnbench
