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

std::vector<double> logs_of(const std::vector<RowAnswer>& parts) {
  std::vector<double> logs;
  for (const RowAnswer& r : parts) logs.push_back(r.lse);
  return logs;
}

/// The states of each row's splits.
std::vector<std::vector<RowAnswer>> splits_of(const HostView& v) {
  const std::vector<HostRow> rows = v.rows();
  std::vector<std::vector<RowAnswer>> parts(rows.size());
  int64_t most = 0;
  for (const HostRow& r : rows) most = std::max(most, r.hi - r.lo);
  for (int64_t from = 0; from < most; from += kSplit) {
    reference::Problem x = v.problem();
    keys_moved([from](const HostView&, HostRow& r) {
      r.lo += from;
      r.hi = std::min(r.hi, r.lo + kSplit);
    })(v, x);
    const std::vector<RowAnswer> part = answers(x, v);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      if (rows[n].lo + from < rows[n].hi) parts[n].push_back(part[n]);
    }
  }
  return parts;
}

/// Each row is merged from its splits; `merge` gets their states, and their LSEs that it may change.
Tamper::Fault with_splits(RowAnswer (*merge)(const std::vector<RowAnswer>& parts,
                                             std::vector<double>& logs)) {
  return with_output([merge](const HostView& v, OutView& out) {
    const std::vector<HostRow> rows = v.rows();
    const std::vector<std::vector<RowAnswer>> parts = splits_of(v);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      std::vector<double> logs = logs_of(parts[n]);
      if (!logs.empty()) set_row(out, rows[n], merge(parts[n], logs));
    }
  });
}

/// The running maximum starts at `start`: a row of lower scores has no weight if exp(score - start) is 0 in float32.
Tamper::Fault with_maximum_from(double start) {
  return with_answers(right_problem, [start](const HostView&, const HostRow&, RowAnswer& a) {
    const double top = a.lse + std::log(a.p_max);
    if (static_cast<float>(std::exp(top - start)) == 0) a = {std::vector<double>(a.o.size()), -INFINITY};
  });
}

double slope_times_diag(const HostView& v, const HostRow& r) {
  return static_cast<double>(v.slope(r.seq, r.head)) * static_cast<double>(r.diag);
}

/// P is rounded to e4m3 times 1024, not 448: the largest weights saturate.
void saturate_p(const HostView& v, const HostRow& r, RowAnswer& a) {
  const int kv_head = r.head / (v.p().num_heads_q / v.p().num_heads_kv);
  std::vector<double> value(a.o.size());
  a.o.assign(a.o.size(), 0.0);
  for (int j = 0; j < r.k_len; ++j) {
    const double p = a.p[static_cast<std::size_t>(j)] / a.p_max;
    if (!(p > 0)) continue;
    const float rounded = e4m3_to_float(float_to_e4m3(static_cast<float>(p * 1024)));
    v.load_v(r.seq, kv_head, j, j + 1, value.data());
    for (std::size_t c = 0; c < value.size(); ++c)
      a.o[c] += a.p_max * static_cast<double>(rounded) / 1024 * value[c];
  }
}

}  // namespace

FaultClass split_faults() {
  return {
      "split and merge",
      {{"split_skipped",
        "the second split of 32 keys is left out",
        {kDecode},
        with_splits([](const std::vector<RowAnswer>& parts, std::vector<double>& logs) {
          if (logs.size() > 1) logs[1] = -INFINITY;
          return merged(parts, logs);
        }),
        {},
        "the second tile of 32 is left out"},
       {"empty_split_counted",
        "a split without keys adds exp(0) to the denominator",
        {kDecode},
        with_answers(right_problem, [](const HostView&, const HostRow&, RowAnswer& a) { add_term(a, 0); }),
        {},
        "exp(0) too much"},
       {"lse_in_log2",
        "LSE in base 2",
        {kDecode},
        with_output([](const HostView&, OutView& out) {
          for (float& x : out.lse) x *= 1.44269504f;
        }),
        {},
        "base 2"},
       {"sink_in_every_split",
        "a sink counts once per split",
        {kWithSinks},
        with_answers(right_problem,
                     [](const HostView& v, const HostRow& r, RowAnswer& a) {
                       const int64_t more = (r.k_len - 1) / kSplit;  // splits but the first
                       if (!v.sinks.empty() && more > 0)
                         add_term(a,
                                  static_cast<double>(v.sink(r.head)) + std::log(static_cast<double>(more)));
                     }),
        {"sinks: true"},
        "the sink counts more than once"},
       {"merge_ignores_lse_stride",
        "splits are weighted by the LSE of the next head's splits",
        {kDecode},
        with_output([](const HostView& v, OutView& out) {
          const std::vector<HostRow> rows = v.rows();
          const std::vector<std::vector<RowAnswer>> parts = splits_of(v);
          const auto heads = static_cast<std::size_t>(v.p().num_heads_q);
          for (std::size_t n = 0; n < rows.size(); ++n) {
            const std::size_t other = n / heads * heads + (n + 1) % heads;
            if (parts[n].empty()) continue;
            RowAnswer m = merged(parts[n], logs_of(parts[other]));
            m.lse = static_cast<double>(out.lse_of(rows[n].token, rows[n].head));
            set_row(out, rows[n], m);
          }
        }),
        {},
        "parts of the keys are merged by wrong weights"},
       {"more_splits_than_planned",
        "the last split has no room in the workspace and is lost",
        {kDecode},
        with_splits([](const std::vector<RowAnswer>& parts, std::vector<double>& logs) {
          if (logs.size() > 1) logs.back() = -INFINITY;
          return merged(parts, logs);
        }),
        {},
        "the last tile of 32 of several is left out"},
       {"splits_averaged",
        "splits are averaged, not weighted by their sums",
        {kDecode},
        with_splits([](const std::vector<RowAnswer>& parts, std::vector<double>& logs) {
          RowAnswer m = merged(parts, std::vector<double>(parts.size(), 0.0));
          m.lse = merged(parts, logs).lse;
          return m;
        }),
        {},
        "count the same, whatever their LSEs are"},
       {"maximum_not_rescaled",
        "sums of earlier splits are not rescaled when a later one raises the maximum",
        {kDecode},
        with_splits([](const std::vector<RowAnswer>& parts, std::vector<double>& logs) {
          double top = -INFINITY;
          for (std::size_t s = 0; s < parts.size(); ++s) {
            top = std::max(top, parts[s].lse + std::log(parts[s].p_max));
            logs[s] -= top;
          }
          for (double& l : logs) l += top;
          return merged(parts, logs);
        }),
        {},
        "nor the sum is rescaled"}}};
}

namespace {

std::vector<Fault> wrong_scales() {
  return {{"scale_off_0_1_percent",
           "softmax_scale is 0.1 % too large",
           {kScale},
           with_params([](Tamper&, AttentionParams& p) { p.softmax_scale *= 1.001f; }),
           {},
           "logits times 1.001"},
          {"scale_of_another_head_dim",
           "1 / sqrt(D + 1)",
           {kScale},
           with_params([](Tamper&, AttentionParams& p) {
             const float d = static_cast<float>(p.head_dim);
             p.softmax_scale *= std::sqrt(d / (d + 1));
           }),
           {},
           "logits times 0.9923"},
          {"maximum_starts_at_0",
           "the running maximum starts at 0: rows of scores below -103 have no weight",
           {kHuge, kHugePaged},
           with_maximum_from(0),
           {"data: huge"},
           "a running maximum starts at 0"},
          {"maximum_starts_at_minus_5e4",
           "the running maximum starts at -5e4, taken for less than any score",
           {kHuge, kHugePaged},
           with_maximum_from(-5e4),
           {"data: huge"},
           "a running maximum starts at -50000"},
          known("softcap_ignored", "no softcap", {kWithSoftcap}, {"softcap"}),
          known("softcap_before_scale", "tanh is taken of the score before it is scaled", {kWithSoftcap},
                {"softcap"})};
}

std::vector<Fault> wrong_biases() {
  return {known("alibi_sign", "the slope is added", {kWithAlibi}),
          known("alibi_slope_of_another_head", "head h has the slope of head h + 1", {kWithAlibi}),
          known("alibi_slopes_of_sequence_0", "every sequence has the slopes of the first",
                {kAlibiBySequence}, {"alibi: per_sequence"}),
          {"alibi_from_key_0",
           "the distance is from key 0 instead of from the diagonal",
           {kWithAlibi},
           with_answers(
               [](const HostView&, reference::Problem& x) {
                 for (double& slope : x.alibi_slopes) slope = -slope;
               },
               [](const HostView& v, const HostRow& r, RowAnswer& a) {
                 a.lse -= slope_times_diag(v, r);  // -slope * j = slope * (diag - j) - slope * diag
               }),
           {"alibi: per_head"},
           "ALiBi counts from key 0"},
          {"alibi_shifted_by_row",
           "slope * j: the same O under a causal mask, another LSE",
           {kWithAlibi},
           with_answers(right_problem, [](const HostView& v, const HostRow& r,
                                          RowAnswer& a) { a.lse += slope_times_diag(v, r); }),
           {},
           "ALiBi counts from key 0"},
          known("sink_ignored", "no sink in the denominator", {kWithSinks}, {"sinks: true"}),
          known("sink_of_another_head", "head h has the sink of head h + 1", {kWithSinks}),
          known("sink_of_kv_head", "head h has the sink of index h / (Hq / Hkv)", {kWithSinks})};
}

}  // namespace

FaultClass score_faults() { return {"scores", joined({wrong_scales(), wrong_biases()})}; }

FaultClass quantised_faults() {
  const auto ones = [](const AttentionParams& p) {
    const int64_t outer = std::max(p.k_descale_stride_outer, p.v_descale_stride_outer);
    return std::vector<float>(static_cast<std::size_t>(p.batch * outer), 1.0f);
  };
  return {"quantised",
          {{"k_descale_ignored",
            "K is taken as stored",
            {kE4m3Descaled},
            with_params([ones](Tamper& t, AttentionParams& p) { p.k_descale = t.put(ones(p)); }),
            {"kv_dtype: e4m3"},
            "descales of K are not applied"},
           {"v_descale_ignored",
            "V is taken as stored",
            {kE4m3Descaled},
            with_params([ones](Tamper& t, AttentionParams& p) { p.v_descale = t.put(ones(p)); }),
            {"kv_dtype: e4m3"},
            "descales of V are not applied"},
           {"v_descale_of_head_0",
            "the descale of KV head 0 for all heads",
            {kE4m3Descaled},
            with_params([](Tamper&, AttentionParams& p) { p.v_descale_stride_head = 0; }),
            {},
            "V has the descale of head 0"},
           {"k_descale_of_sequence_0",
            "the descales of sequence 0 for all sequences",
            {kE4m3Descaled},
            with_params([](Tamper&, AttentionParams& p) { p.k_descale_stride_outer = 0; }),
            {"kv_dtype: e4m3"},
            "K has the descale of sequence 0"},
           {"k_and_v_descales_swapped",
            "each has the other's",
            {kE4m3Descaled},
            with_params([](Tamper&, AttentionParams& p) { std::swap(p.k_descale, p.v_descale); }),
            {},
            "descales of K and V are exchanged"},
           {"p_saturated",
            "P in e4m3 at a scale that saturates",
            {kE4m3Descaled},
            with_answers([](const HostView&, reference::Problem& x) { x.probs = true; }, saturate_p)}}};
}

}  // namespace attnbench
