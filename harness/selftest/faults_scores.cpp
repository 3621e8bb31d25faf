// Faults of splits and merging, of scores, and of quantised keys and values.
#include <algorithm>
#include <cmath>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define SMALL "dtype: bf16, heads: 8/2, head_dim: 64"
constexpr const char* kDecode =
    "{kv: paged, block_size: 16, " SMALL ", mask: none, batch: q1s160_q2s97_q1s130}";
constexpr const char* kWithSinks = "{kv: packed, " SMALL ", mask: causal, sinks: true, batch: q33s50_q2s80}";
constexpr const char* kWithSoftcap = "{kv: packed, " SMALL ", mask: causal, softcap: 2, batch: q33s50_q2s80}";
constexpr const char* kWithAlibi =
    "{kv: packed, " SMALL ", mask: causal, alibi: per_head, batch: q33s50_q2s80}";
constexpr const char* kAlibiBySequence =
    "{kv: packed, " SMALL ", mask: causal, alibi: per_sequence, batch: q33s50_q2s80_q5}";
constexpr const char* kScale = "{kv: packed, " SMALL ", mask: causal, batch: q100_q120}";
constexpr const char* kE4m3Descaled =
    "{kv: paged, block_size: 16, dtype: bf16, kv_dtype: e4m3, heads: 8/2, head_dim: 64, mask: causal, batch: "
    "q5s70_q3s100_q20s33}";

constexpr const char* kHuge = "{kv: packed, " SMALL ", mask: causal, data: huge, batch: q20_q33s50_q1s80}";
constexpr const char* kHugePaged =
    "{kv: paged, block_size: 16, " SMALL ", mask: causal, data: huge, batch: q1s70_q1s100_q2s97}";

constexpr int64_t kSplit = 32;  ///< keys of a split, for faults that need splits

/// Makes O and LSE of a row from the states of its splits.
using Merge = std::function<HostResult(const HostView&, const HostRow&, const std::vector<HostResult>&)>;

Tamper::Fault with_splits(const Merge& merge) {
  return with_output([merge](const HostView& v, OutView& out) {
    HostAttention host(v);
    for (const HostRow& r : v.rows()) {
      std::vector<HostResult> parts;
      for (int64_t begin = r.lo; begin < r.hi; begin += kSplit) {
        HostRow part = r;
        part.lo = begin;
        part.hi = std::min(r.hi, begin + kSplit);
        parts.push_back(host.right(part));
      }
      if (parts.empty()) continue;
      const HostResult m = merge(v, r, parts);
      for (int c = 0; c < v.p().head_dim; ++c)
        out.set_o(r.token, r.head, c, static_cast<float>(m.o[static_cast<std::size_t>(c)]));
      out.lse_of(r.token, r.head) = static_cast<float>(m.lse);
    }
  });
}

/// Merges states with weights from `logs`, which take the place of their LSEs.
HostResult weighted(const std::vector<HostResult>& parts, const std::vector<double>& logs) {
  const double top = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double l : logs) sum += std::exp(l - top);
  HostResult m{std::vector<double>(parts[0].o.size(), 0.0), top + std::log(sum)};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t c = 0; c < m.o.size(); ++c) m.o[c] += std::exp(logs[i] - top) / sum * parts[i].o[c];
  }
  return m;
}

std::vector<double> logs_of(const std::vector<HostResult>& parts) {
  std::vector<double> logs;
  for (const HostResult& r : parts) logs.push_back(r.lse);
  return logs;
}

/// Adds a term e^extra to every row's denominator.
Tamper::Fault with_extra_term(const std::function<double(const HostView&, const HostRow&)>& extra) {
  return with_output([extra](const HostView& v, OutView& out) {
    for (const HostRow& r : v.rows()) {
      float& lse = out.lse_of(r.token, r.head);
      const double right = static_cast<double>(lse);
      const double wrong = right + std::log1p(std::exp(extra(v, r) - right));
      for (int c = 0; c < v.p().head_dim; ++c) {
        const double o = static_cast<double>(out.o(r.token, r.head, c)) * std::exp(right - wrong);
        out.set_o(r.token, r.head, c, static_cast<float>(o));
      }
      lse = static_cast<float>(wrong);
    }
  });
}

Tamper::Fault with_score(std::function<double(const HostView&, const HostRow&, int64_t, double)> score) {
  HostRule rule;
  rule.score = std::move(score);
  return with_rule(rule);
}

/// The running maximum starts at `start`, so weights are relative to it if all scores of a row are lower.
Tamper::Fault with_maximum_from(double start) {
  HostRule rule;
  rule.first_maximum = start;
  return with_rule(rule);
}

double scaled(const HostView& v, double qk) { return qk * static_cast<double>(v.p().softmax_scale); }

}  // namespace

FaultClass split_faults() {
  HostRule skipped;
  skipped.hidden = [](const HostRow& r, int64_t j) { return j >= r.lo + kSplit && j < r.lo + 2 * kSplit; };
  return {"split and merge",
          {{"split_skipped", "the second split of 32 keys is left out", {kDecode}, with_rule(skipped)},
           {"empty_split_counted",
            "a split without keys adds exp(0) to the denominator",
            {kDecode},
            with_extra_term([](const HostView&, const HostRow&) { return 0.0; })},
           {"lse_in_log2", "LSE in base 2", {kDecode}, with_output([](const HostView&, OutView& out) {
              for (float& x : out.lse) x *= 1.44269504f;
            })},
           {"sink_in_every_split",
            "a sink counts once per split",
            {kWithSinks},
            with_extra_term([](const HostView& v, const HostRow& r) {
              const double splits = std::ceil(static_cast<double>(r.k_len) / static_cast<double>(kSplit));
              const double more = std::max(0.0, splits - 1);
              return v.sinks.empty() ? -INFINITY : static_cast<double>(v.sink(r.head)) + std::log(more);
            }),
            {"sinks: true"}},
           {"merge_ignores_lse_stride",
            "splits are weighted by the LSE of the next head's splits",
            {kDecode},
            with_output([](const HostView& v, OutView& out) {
              HostAttention host(v);
              for (const HostRow& r : v.rows()) {
                std::vector<HostResult> parts, others;
                HostRow other = r;
                other.head = (r.head + 1) % v.p().num_heads_q;
                for (int64_t begin = r.lo; begin < r.hi; begin += kSplit) {
                  HostRow part = r;
                  part.lo = begin;
                  part.hi = std::min(r.hi, begin + kSplit);
                  parts.push_back(host.right(part));
                  part.head = other.head;
                  others.push_back(host.right(part));
                }
                if (parts.empty()) continue;
                const HostResult m = weighted(parts, logs_of(others));
                for (int c = 0; c < v.p().head_dim; ++c)
                  out.set_o(r.token, r.head, c, static_cast<float>(m.o[static_cast<std::size_t>(c)]));
              }
            })},
           {"more_splits_than_planned",
            "the last split has no room in the workspace and is lost",
            {kDecode},
            with_splits([](const HostView&, const HostRow&, const std::vector<HostResult>& parts) {
              std::vector<HostResult> kept(parts.begin(), parts.end() - (parts.size() > 1 ? 1 : 0));
              return weighted(kept, logs_of(kept));
            })},
           {"splits_averaged",
            "splits are averaged, not weighted by their sums",
            {kDecode},
            with_splits([](const HostView&, const HostRow&, const std::vector<HostResult>& parts) {
              HostResult m = weighted(parts, std::vector<double>(parts.size(), 0.0));
              m.lse = weighted(parts, logs_of(parts)).lse;
              return m;
            })},
           {"maximum_not_rescaled",
            "the first split's sum is not rescaled to the final maximum",
            {kDecode},
            with_splits([](const HostView&, const HostRow&, const std::vector<HostResult>& parts) {
              std::vector<double> logs = logs_of(parts);
              if (logs.size() > 1) logs[0] += 0.25;  // maxima of two splits differ by about this much
              return weighted(parts, logs);
            })}}};
}

namespace {

std::vector<Fault> wrong_scales() {
  return {
      {"scale_off_0_1_percent",
       "softmax_scale is 0.1 % too large",
       {kScale},
       with_params([](Tamper&, AttentionParams& p) { p.softmax_scale *= 1.001f; })},
      {"scale_of_another_head_dim", "1 / sqrt(D + 1)", {kScale}, with_params([](Tamper&, AttentionParams& p) {
         const float d = static_cast<float>(p.head_dim);
         p.softmax_scale *= std::sqrt(d / (d + 1));
       })},
      {"maximum_starts_at_0",
       "the running maximum starts at 0: rows of scores below -103 have no weight",
       {kHuge, kHugePaged},
       with_maximum_from(0),
       {"data: huge"}},
      {"maximum_starts_at_minus_5e4",
       "the running maximum starts at -5e4, taken for less than any score",
       {kHuge, kHugePaged},
       with_maximum_from(-5e4),
       {"data: huge"}},
      {"softcap_ignored",
       "no softcap",
       {kWithSoftcap},
       with_params([](Tamper&, AttentionParams& p) {
         p.softcap = 0;
         p.features &= ~uint64_t{kSoftcap};
       }),
       {"softcap"}},
      {"softcap_before_scale",
       "tanh is taken of the score before it is scaled",
       {kWithSoftcap},
       with_score([](const HostView& v, const HostRow&, int64_t, double qk) {
         const double cap = static_cast<double>(v.p().softcap);
         return scaled(v, cap * std::tanh(qk / cap));
       }),
       {"softcap"}}};
}

std::vector<Fault> wrong_biases() {
  return {{"alibi_sign", "the slope is added", {kWithAlibi}, with_params([](Tamper& t, AttentionParams& p) {
             auto slopes = t.read<float>(p.alibi_slopes, p.num_heads_q);
             for (float& x : slopes) x = -x;
             p.alibi_slopes = t.put(slopes);
           })},
          {"alibi_slope_of_another_head",
           "head h has the slope of head h + 1",
           {kWithAlibi},
           with_params([](Tamper& t, AttentionParams& p) {
             auto slopes = t.read<float>(p.alibi_slopes, p.num_heads_q);
             std::rotate(slopes.begin(), slopes.begin() + 1, slopes.end());
             p.alibi_slopes = t.put(slopes);
           })},
          {"alibi_slopes_of_sequence_0",
           "every sequence has the slopes of the first",
           {kAlibiBySequence},
           with_params([](Tamper&, AttentionParams& p) { p.alibi_stride_batch = 0; }),
           {"alibi: per_sequence"}},
          {"alibi_from_key_0",
           "the distance is from key 0 instead of from the diagonal",
           {kWithAlibi},
           with_score([](const HostView& v, const HostRow& r, int64_t j, double qk) {
             return scaled(v, qk) - static_cast<double>(v.slope(r.seq, r.head)) * static_cast<double>(j);
           }),
           {"alibi: per_head"}},
          {"alibi_shifted_by_row",
           "slope * j: the same O under a causal mask, another LSE",
           {kWithAlibi},
           with_score([](const HostView& v, const HostRow& r, int64_t j, double qk) {
             return scaled(v, qk) + static_cast<double>(v.slope(r.seq, r.head)) * static_cast<double>(j);
           })},
          {"sink_ignored",
           "no sink in the denominator",
           {kWithSinks},
           with_params([](Tamper&, AttentionParams& p) {
             p.features &= ~uint64_t{kSinks};
             p.sinks = nullptr;
           }),
           {"sinks: true"}},
          {"sink_of_another_head",
           "head h has the sink of head h + 1",
           {kWithSinks},
           with_params([](Tamper& t, AttentionParams& p) {
             if (p.sinks == nullptr) return;
             auto sinks = t.read<float>(p.sinks, p.num_heads_q);
             std::rotate(sinks.begin(), sinks.begin() + 1, sinks.end());
             p.sinks = t.put(sinks);
           })}};
}

}  // namespace

FaultClass score_faults() { return {"scores", joined({wrong_scales(), wrong_biases()})}; }

FaultClass quantised_faults() {
  const auto ones = [](const AttentionParams& p) {
    const int64_t outer = std::max(p.k_descale_stride_outer, p.v_descale_stride_outer);
    return std::vector<float>(static_cast<std::size_t>(p.batch * outer), 1.0f);
  };
  HostRule saturated;
  saturated.weight = [](double p) {  // times 1024, not 448: the largest weights saturate
    return static_cast<double>(e4m3_to_float(float_to_e4m3(static_cast<float>(p * 1024)))) / 1024;
  };
  return {"quantised",
          {{"k_descale_ignored",
            "K is taken as stored",
            {kE4m3Descaled},
            with_params([ones](Tamper& t, AttentionParams& p) { p.k_descale = t.put(ones(p)); }),
            {"kv_dtype: e4m3"}},
           {"v_descale_ignored",
            "V is taken as stored",
            {kE4m3Descaled},
            with_params([ones](Tamper& t, AttentionParams& p) { p.v_descale = t.put(ones(p)); }),
            {"kv_dtype: e4m3"}},
           {"v_descale_of_head_0",
            "the descale of KV head 0 for all heads",
            {kE4m3Descaled},
            with_params([](Tamper&, AttentionParams& p) { p.v_descale_stride_head = 0; })},
           {"k_descale_of_sequence_0",
            "the descales of sequence 0 for all sequences",
            {kE4m3Descaled},
            with_params([](Tamper&, AttentionParams& p) { p.k_descale_stride_outer = 0; }),
            {"kv_dtype: e4m3"}},
           {"k_and_v_descales_swapped",
            "each has the other's",
            {kE4m3Descaled},
            with_params([](Tamper&, AttentionParams& p) { std::swap(p.k_descale, p.v_descale); })},
           {"p_saturated", "P in e4m3 at a scale that saturates", {kE4m3Descaled}, with_rule(saturated)}}};
}

}  // namespace attnbench
