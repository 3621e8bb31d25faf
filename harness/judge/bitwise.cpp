#include "harness/judge/bitwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace attnbench {
namespace {

int64_t longest_k(const CaseParams& p) {
  int64_t longest = 0;
  for (const SeqLen& s : p.seqs) longest = std::max<int64_t>(longest, s.k);
  return longest;
}

std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

/// The first token of each sequence's keys, and behind them the number of tokens.
std::vector<int64_t> k_begins(const CaseParams& p) {
  std::vector<int64_t> begins = {0};
  for (const SeqLen& s : p.seqs) begins.push_back(begins.back() + s.k);
  return begins;
}

/// One of dq, dk and dv: (tokens, heads, dim).
struct GradientTensor {
  const char* name;
  std::vector<unsigned char> HostOutputs::*values;
  bool of_keys;
  int64_t heads, dim;
};

std::vector<GradientTensor> gradients_of(const CaseParams& p) {
  return {{"dq", &HostOutputs::dq, false, p.num_heads_q, p.head_dim},
          {"dk", &HostOutputs::dk, true, p.num_heads_kv, p.head_dim},
          {"dv", &HostOutputs::dv, true, p.num_heads_kv, p.dim_v()}};
}

/// laid_over for gradients. Those of the sinks are sums over the batch, so only the same batch has them.
HostOutputs gradients_laid_over(const CaseParams& p, HostOutputs base, const CaseParams& other_p,
                                const HostOutputs& other, std::span<const int32_t> ids) {
  for (const GradientTensor& g : gradients_of(p)) {
    const std::vector<int64_t> to = g.of_keys ? k_begins(p) : q_begins(p);
    const std::vector<int64_t> from = g.of_keys ? k_begins(other_p) : q_begins(other_p);
    const int64_t row_bytes = g.heads * g.dim * static_cast<int64_t>(dtype_size(p.type_of_out()));
    for (std::size_t i = 0; i < other_p.seqs.size(); ++i) {
      const std::size_t b = ids.empty() ? i : static_cast<std::size_t>(ids[i]);
      std::copy_n((other.*g.values).begin() + from[i] * row_bytes, (from[i + 1] - from[i]) * row_bytes,
                  (base.*g.values).begin() + to[b] * row_bytes);
    }
  }
  if (ids.empty()) base.dsinks = other.dsinks;
  return base;
}

std::optional<std::string> first_gradient_difference(const CaseParams& p, const HostOutputs& a,
                                                     const HostOutputs& b) {
  const std::size_t e = dtype_size(p.type_of_out());
  for (const GradientTensor& g : gradients_of(p)) {
    const std::vector<int64_t> begins = g.of_keys ? k_begins(p) : q_begins(p);
    const std::vector<unsigned char>&x = a.*g.values, &y = b.*g.values;
    if (x == y) continue;
    int64_t i = 0;
    while (std::memcmp(&x[at(i) * e], &y[at(i) * e], e) == 0) ++i;
    const int64_t token = i / (g.heads * g.dim);
    const auto seq = std::upper_bound(begins.begin(), begins.end(), token) - begins.begin() - 1;
    return fmt::format("{} of seq {} pos {} head {} channel {}: {:.9g}, in the first launch {:.9g}", g.name,
                       seq, token - begins[at(seq)], i / g.dim % g.heads, i % g.dim,
                       load_float(p.type_of_out(), y.data(), i), load_float(p.type_of_out(), x.data(), i));
  }
  for (std::size_t h = 0; h < a.dsinks.size(); ++h) {
    if (float_bits(a.dsinks[h]) != float_bits(b.dsinks[h]))
      return fmt::format("dsinks of head {}: {:.9g}, in the first launch {:.9g}", h, b.dsinks[h],
                         a.dsinks[h]);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> first_not_scaled(const Case& c, const HostOutputs& base, const HostOutputs& scaled,
                                            float factor) {
  // Products of numbers this small may lose digits, in which a factor shows.
  constexpr float kLeast = 0x1p-80f;
  const CaseParams& p = c.params;
  const DType type = p.type_of_out();
  // Where a sum lies between two fp32 numbers, a lost digit of the smallest term decides which of them it becomes. Then
  // the gradient, which may have been scaled since, has another last digit.
  const auto slack = static_cast<float>(std::max(2 * unit_roundoff(type), 4 * unit_roundoff(DType::kFp32)));
  const auto differ = [=](float x, float y) {
    const float expected = factor * x;
    return y != expected && (factor == 0 || !(std::abs(y - expected) <= slack * std::abs(expected)));
  };
  for (const GradientTensor& g : gradients_of(p)) {
    const std::vector<int64_t> begins = g.of_keys ? k_begins(p) : q_begins(p);
    for (int64_t i = 0; i < begins.back() * g.heads * g.dim; ++i) {
      const float x = load_float(type, (base.*g.values).data(), i);
      const float y = load_float(type, (scaled.*g.values).data(), i);
      if (!differ(x, y) || (factor != 0 && std::abs(x) < kLeast && std::abs(y) < factor * kLeast)) continue;
      const int64_t token = i / (g.heads * g.dim);
      const auto seq = std::upper_bound(begins.begin(), begins.end(), token) - begins.begin() - 1;
      return fmt::format("{} of seq {} pos {} head {} channel {} is {:.9g}, expected {:.9g}", g.name, seq,
                         token - begins[at(seq)], i / g.dim % g.heads, i % g.dim, y, factor * x);
    }
  }
  for (std::size_t h = 0; h < base.dsinks.size(); ++h) {
    if (!differ(base.dsinks[h], scaled.dsinks[h])) continue;
    return fmt::format("dsinks of head {} is {:.9g}, expected {:.9g}", h, scaled.dsinks[h],
                       factor * base.dsinks[h]);
  }
  return std::nullopt;
}

std::vector<int64_t> q_begins(const CaseParams& p) {
  std::vector<int64_t> begins = {0};
  for (const SeqLen& s : p.seqs) begins.push_back(begins.back() + s.q);
  return begins;
}

HostOutputs laid_over(const Case& c, HostOutputs base, const Case& other_case, const HostOutputs& other,
                      std::span<const int32_t> ids) {
  const CaseParams& p = c.params;
  if (p.op == Op::kAttentionBackward)
    return gradients_laid_over(p, std::move(base), other_case.params, other, ids);
  const std::vector<int64_t> to = q_begins(p);
  const std::vector<int64_t> from = q_begins(other_case.params);
  const int64_t row_bytes =
      int64_t{p.num_heads_q} * p.dim_v() * static_cast<int64_t>(dtype_size(p.type_of_out()));
  for (std::size_t i = 0; i < other_case.params.seqs.size(); ++i) {
    const std::size_t b = ids.empty() ? i : static_cast<std::size_t>(ids[i]);
    const int64_t rows = other_case.params.seqs[i].q;
    std::copy_n(other.out.begin() + from[i] * row_bytes, rows * row_bytes,
                base.out.begin() + to[b] * row_bytes);
    for (int64_t h = 0; h < p.num_heads_q; ++h) {
      std::copy_n(other.lse.begin() + h * from.back() + from[i], rows,
                  base.lse.begin() + h * to.back() + to[b]);
      // A row of probabilities has room for the longest sequence of its batch; the rest of the row is 0.
      for (int64_t i_row = 0; p.probs && i_row < rows; ++i_row) {
        const int64_t k = other_case.params.seqs[i].k;
        std::copy_n(other.probs.begin() + (h * from.back() + from[i] + i_row) * longest_k(other_case.params),
                    k, base.probs.begin() + (h * to.back() + to[b] + i_row) * longest_k(p));
      }
    }
  }
  return base;
}

namespace {

/// An element of O. The bits before a launch are those of poison.
std::string o_text(DType type, const std::vector<unsigned char>& out, int64_t index) {
  const float value = load_float(type, out.data(), index);
  if (!std::isnan(value)) return fmt::format("{:.9g}", value);
  const std::size_t e = dtype_size(type);
  const auto first = out.begin() + static_cast<std::ptrdiff_t>(at(index) * e);
  const bool ones =
      std::all_of(first, first + static_cast<std::ptrdiff_t>(e), [](unsigned char x) { return x == 0xff; });
  return ones ? "NaN (not written, or poison that was read)" : "NaN";
}

std::string lse_text(float lse) {
  if (float_bits(lse) == ~uint32_t{0}) return "not written";
  return std::isnan(lse) ? "NaN" : fmt::format("{:.9g}", lse);
}

}  // namespace

std::optional<std::string> first_difference(const Case& c, const HostOutputs& a, const HostOutputs& b) {
  const CaseParams& p = c.params;
  if (p.op == Op::kAttentionBackward) return first_gradient_difference(p, a, b);
  const std::vector<int64_t> begin = q_begins(p);
  const std::size_t e = dtype_size(p.type_of_out());
  for (std::size_t s = 0; s < p.seqs.size(); ++s) {
    for (int i = 0; i < p.seqs[s].q; ++i) {
      const int64_t token = begin[s] + i;
      for (int h = 0; h < p.num_heads_q; ++h) {
        for (int ch = 0; ch < p.dim_v(); ++ch) {
          const int64_t index = (token * p.num_heads_q + h) * p.dim_v() + ch;
          if (std::memcmp(&a.out[at(index) * e], &b.out[at(index) * e], e) == 0) continue;
          return fmt::format("O of seq {} pos {} head {} channel {}: {}, in the first launch {}", s, i, h, ch,
                             o_text(p.type_of_out(), b.out, index), o_text(p.type_of_out(), a.out, index));
        }
        const std::size_t l = at(h * begin.back() + token);
        if (float_bits(a.lse[l]) != float_bits(b.lse[l]))
          return fmt::format("LSE of seq {} pos {} head {}: {}, in the first launch {}", s, i, h,
                             lse_text(b.lse[l]), lse_text(a.lse[l]));
        for (int key = 0; p.probs && key < p.seqs[s].k; ++key) {
          const std::size_t at_key = l * at(longest_k(p)) + at(key);
          if (float_bits(a.probs[at_key]) == float_bits(b.probs[at_key])) continue;
          return fmt::format(
              "probability of seq {} pos {} head {} key {}: {:.9g}, in the first launch {:.9g}", s, i, h, key,
              b.probs[at_key], a.probs[at_key]);
        }
      }
    }
  }
  return std::nullopt;
}

PaddedOutputs cut_padding(const Case& c, HostOutputs padded) {
  const CaseParams& p = c.params;
  const std::size_t total = at(q_begins(p).back());
  const auto heads = static_cast<std::size_t>(p.num_heads_q);
  const std::size_t row_bytes = heads * static_cast<std::size_t>(p.dim_v()) * dtype_size(p.type_of_out());
  const std::size_t room = padded.lse.size() / heads;
  PaddedOutputs cut;
  if (!padded.unused_written.empty()) cut.padding_written = padded.unused_written;
  for (std::size_t i = total * row_bytes; i < padded.out.size() && !cut.padding_written; ++i) {
    if (padded.out[i] != 0xff)
      cut.padding_written = fmt::format("O of padding token {} was written", i / row_bytes);
  }
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t t = 0; t < room; ++t) {
      const float lse = padded.lse[h * room + t];
      if (t < total) {
        cut.outputs.lse.push_back(lse);
      } else if (float_bits(lse) != 0xffffffffu && !cut.padding_written) {
        cut.padding_written = fmt::format("LSE of padding token {} head {} was written", t, h);
      }
    }
  }
  padded.out.resize(total * row_bytes);
  cut.outputs.out = std::move(padded.out);
  cut.outputs.no_lse = padded.no_lse;
  cut.outputs.inf_empty_lse = padded.inf_empty_lse;
  return cut;
}

HostOutputs merged(const Case& c, const HostOutputs& a, const HostOutputs& b) {
  const CaseParams& p = c.params;
  const int64_t total = q_begins(p).back();
  const double u = unit_roundoff(p.type_of_out());
  HostOutputs m;
  m.out.resize(a.out.size());
  m.lse.resize(a.lse.size());
  m.extra_variance.resize(at(total * p.num_heads_q * p.dim_v()));
  for (int64_t token = 0; token < total; ++token) {
    for (int64_t h = 0; h < p.num_heads_q; ++h) {
      const std::size_t l = at(h * total + token);
      const double la = a.lse[l];
      const double lb = b.lse[l];
      // An empty state is O = 0, LSE = -inf; fmax would drop a NaN.
      const double top = la > lb || std::isnan(la) ? la : lb;
      const bool empty = top == -INFINITY;
      const double sum = std::exp(la - top) + std::exp(lb - top);
      m.lse[l] = static_cast<float>(empty ? top : top + std::log(sum));
      const double wa = empty ? 0 : std::exp(la - top) / sum;
      const double wb = empty ? 0 : std::exp(lb - top) / sum;
      for (int64_t ch = 0; ch < p.dim_v(); ++ch) {
        const int64_t i = (token * p.num_heads_q + h) * p.dim_v() + ch;
        const double oa = wa * static_cast<double>(load_float(p.type_of_out(), a.out.data(), i));
        const double ob = wb * static_cast<double>(load_float(p.type_of_out(), b.out.data(), i));
        store_float(p.type_of_out(), m.out.data(), i, static_cast<float>(oa + ob));
        m.extra_variance[at(i)] = u * u * (oa * oa + ob * ob) / 3.0;
      }
    }
  }
  return m;
}

}  // namespace attnbench
