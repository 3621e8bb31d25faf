// Faults of masks and lengths.
#include <algorithm>
#include <cmath>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define SMALL "dtype: bf16, heads: 8/2, head_dim: 64"
constexpr const char* kPagedCausal =
    "{kv: paged, block_size: 16, " SMALL ", mask: causal, batch: q5s70_q1s100_q3s33_q1s64}";
constexpr const char* kPackedCausal = "{kv: packed, " SMALL ", mask: causal, batch: q40_q17s30_q1s50}";
constexpr const char* kTopLeftPacked =
    "{kv: packed, " SMALL ", mask: causal_top_left, batch: q40_q17s30_q1s50_q33s20}";
constexpr const char* kTopLeftPaged =
    "{kv: paged, block_size: 16, " SMALL ", mask: causal_top_left, batch: q5s70_q1s100_q33s20}";
constexpr const char* kWindowed =
    "{kv: packed, " SMALL ", mask: causal, window: \"20,0\", batch: q40s60_q1s100}";
constexpr const char* kChunked =
    "{kv: packed, " SMALL ", mask: causal, attention_chunk: 16, batch: q40s60_q1s100}";
constexpr const char* kChunkedFull =
    "{kv: paged, block_size: 16, " SMALL ", mask: none, attention_chunk: 24, batch: q40s60_q1s100}";
constexpr const char* kDraft =
    "{kv: paged, block_size: 16, " SMALL ", mask: causal, window: \"30,0\", batch: 3q4s100}";
constexpr const char* kPagedFull =
    "{kv: paged, block_size: 16, " SMALL ", mask: none, batch: q1s100_q1s77_q2s150}";
/// A row of this case is shorter than a guard zone.
constexpr const char* kFewHeads =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 2/1, head_dim: 64, mask: causal, batch: 3q2s20}";
constexpr const char* kGapsUnmasked =
    "{kv: packed, gap_tokens: 20, " SMALL ", mask: none, batch: q9s40_q1s51_q3s45}";
constexpr const char* kZeros =
    "{kv: paged, block_size: 16, " SMALL ", mask: causal, batch: q3s40_q0s20_q2s33_q0_q4}";
constexpr const char* kShortKeys =
    "{kv: packed, " SMALL ", mask: causal, allow_short_kv: true, batch: q9s6_q5_q7s3}";
constexpr const char* kHugeLogits =
    "{kv: packed, " SMALL ", mask: causal, softmax_scale: 1000, data: large, batch: q20_q13}";

int64_t up(int64_t x, int64_t tile) { return (x + tile - 1) / tile * tile; }

/// Rows that see other keys: `move` changes lo and hi.
Tamper::Fault with_keys(std::function<void(const HostView&, HostRow&)> move) {
  return with_answers(keys_moved(std::move(move)));
}

/// All keys count alike, whatever the masks say of them.
reference::Problem uniform(const HostView& v) {
  reference::Problem x = v.problem();
  keys_moved([](const HostView&, HostRow& r) { r.lo = 0, r.hi = r.k_len; })(v, x);
  x.softmax_scale = 0;
  return x;
}

/// Adds what a score of `sentinel` makes of the keys that a row does not see.
void add_masked_keys(const HostView& v, OutView& out, double sentinel) {
  reference::Problem hidden = uniform(v);
  const std::vector<HostRow> rows = v.rows();
  hidden.sees = [&v](int seq, int pos, int, int64_t key) {
    return !visible_keys(mask_of_launch(v.p()), v.q_len(seq), v.k_len(seq), pos).contains(key);
  };
  const auto seen = answers(v.problem(), v), masked = answers(hidden, v);
  for (std::size_t n = 0; n < rows.size(); ++n)
    set_row(out, rows[n], merged({seen[n], masked[n]}, {seen[n].lse, masked[n].lse + sentinel}));
}

}  // namespace

FaultClass mask_faults() {
  return {
      "mask",
      {known("causal_top_left", "query i sees keys up to i, however many keys there are",
             {kPackedCausal, kPagedCausal}, {"mask: causal"}),
       known("causal_without_diagonal", "j < diag instead of j <= diag", {kPackedCausal, kPagedCausal}),
       known("causal_one_ahead", "j <= diag + 1", {kPackedCausal, kPagedCausal}),
       known("causal_of_longest", "j <= i + max_seqlen_k - max_seqlen_q", {kPackedCausal, kPagedCausal}),
       known("causal_ignored", "every key is seen", {kPackedCausal, kPagedCausal}, {"mask: causal"}),
       known("top_left_taken_as_bottom_right",
             "a causal mask from the first key on is aligned at the last one",
             {kTopLeftPacked, kTopLeftPaged}, {"mask: causal_top_left"}),
       known("window_off_by_one", "window_left counts the key on the diagonal", {kWindowed, kDraft},
             {"window"}),
       known("window_ignored", "all keys before the diagonal are seen", {kWindowed, kDraft}, {"window"}),
       known("chunk_ignored", "keys of all chunks are seen", {kChunked, kChunkedFull}, {"attention_chunk"}),
       known("chunk_as_a_window", "the last attention_chunk keys are seen, not those of the query's chunk",
             {kChunked}, {"attention_chunk"}),
       known("chunk_of_the_query_index", "chunks count from the first query, not from the first key",
             {kChunked, kChunkedFull}),
       known("chunk_ends_one_key_late", "the first key of the next chunk is seen", {kChunkedFull}),
       known("window_from_last_draft_token", "one window start, the last token's, for all tokens of a step",
             {kDraft}, {"mask: causal"}),
       known("window_start_rounded_to_split", "the split that holds the window's start is left out",
             {kWindowed, kDraft}),
       known("right_mask_missing_on_last_tile", "the partial tile at the diagonal is not masked",
             {kPackedCausal, kPagedCausal}),
       {"finite_sentinel",
        "masked scores are -5e4, visible ones below that",
        {kHugeLogits},
        with_output([](const HostView& v, OutView& out) { add_masked_keys(v, out, -5e4); }),
        {"data: large"},
        "masked scores"}}};
}

namespace {

std::vector<Fault> wrong_key_lengths() {
  return {{"max_instead_of_actual",
           "every sequence as long as the longest",
           {kGapsUnmasked},
           with_params([](Tamper& t, AttentionParams& p) {
             const int32_t longest = p.max_seqlen_k;
             // Only to the end of the sequence's pages: junk entries behind them would end the process.
             const bool paged = (p.features & kPagedKv) != 0;
             const int32_t page = p.block_size;
             change_lengths(t, p, [&](int, int32_t k) {
               return paged ? std::min(longest, static_cast<int32_t>(up(k, page))) : longest;
             });
           }),
           {"batch"},
           "must not be read"},
          {"rounded_to_page",
           "keys up to the end of the last page are read",
           {kPagedFull},
           with_params([](Tamper& t, AttentionParams& p) {
             const int32_t page = std::max(1, p.block_size);
             change_lengths(t, p, [&](int, int32_t k) { return static_cast<int32_t>(up(k, page)); });
           }),
           {},
           "must not be read"},
          {"padding_in_denominator",
           "a tile's padding counts with score 0",
           {kPackedCausal, kPagedFull},
           with_answers(right_problem,
                        [](const HostView&, const HostRow& r, RowAnswer& a) {
                          add_term(a, std::log(static_cast<double>(up(r.k_len, 64) - r.k_len)));
                        }),
           {},
           "count as keys of score 0"},
          known("last_key_dropped", "each sequence ends one key early", {kPagedFull, kGapsUnmasked}),
          {"last_partial_page_dropped",
           "whole pages only",
           {kPagedFull},
           with_answers([](const HostView& v, reference::Problem& x) {
             const int page = std::max(1, v.p().block_size);
             for (int& k : x.k_lens) k = k / page * page;
           }),
           {},
           "keys behind the last whole page"}};
}

std::vector<Fault> shifted_rows() {
  /// Sequences without queries are not counted, so the next one gets lengths and pages of another sequence.
  const auto shifted_table = with_params([](Tamper& t, AttentionParams& p) {
    const HostView view(t, p);
    if (view.table.empty() || view.used.empty()) return;
    std::vector<int32_t> table = view.table;
    std::vector<int32_t> used = view.used;
    std::size_t next = 0;
    for (std::size_t b = 0; b < used.size(); ++b) {
      if (view.cu_q[b + 1] == view.cu_q[b]) continue;
      const auto stride = static_cast<std::ptrdiff_t>(p.block_table_stride);
      std::copy_n(view.table.begin() + static_cast<std::ptrdiff_t>(next) * stride, stride,
                  table.begin() + static_cast<std::ptrdiff_t>(b) * stride);
      used[b] = view.used[next++];
    }
    p.block_table = t.put(table);
    p.seqused_k = t.put(used);
  });
  return {{"first_query_row_dropped",
           "query 0 of each sequence is skipped, its output zeros",
           {kPackedCausal, kPagedCausal},
           with_output([](const HostView& v, OutView& out) {
             for (const HostRow& r : v.rows()) {
               if (r.i != 0) continue;
               for (int c = 0; c < v.p().head_dim; ++c) out.set_o(r.token, r.head, c, 0);
               out.lse_of(r.token, r.head) = 0;
             }
           }),
           {"batch"},
           "not computed, or not stored"},
          {"cu_seqlens_start_ignored",
           "queries are taken to begin at row 0",
           {kPackedCausal, kPagedCausal},
           with_params([](Tamper& t, AttentionParams& p) {
             if (p.batch == 0) return;
             auto cu = t.read<int32_t>(p.cu_seqlens_q, p.batch + 1);
             const int32_t first = cu[0];
             for (int32_t& x : cu) x -= first;
             p.cu_seqlens_q = t.put(cu);
           })},
          {"one_sequence_too_many",
           "what stands behind the lengths of the last sequence is taken as another one",
           {kFewHeads},
           with_params([](Tamper&, AttentionParams& p) { ++p.batch; })},
          {"empty_sequence_shifts_tables",
           "a sequence without queries shifts the tables of the next ones",
           {kZeros},
           shifted_table,
           {"batch"},
           "sequences without queries are not counted"},
          {"empty_sequence_shifts_lse",
           "a sequence without queries shifts the LSE of the next one",
           {kZeros},
           with_output([](const HostView& v, OutView& out) {
             const std::vector<float> right = out.lse;
             for (std::size_t b = 0; b + 2 < v.cu_q.size(); ++b) {
               if (v.cu_q[b] != v.cu_q[b + 1]) continue;
               for (int h = 0; h < v.p().num_heads_q; ++h) {
                 for (int64_t t = v.cu_q[b + 1]; t + 1 < v.cu_q[b + 2]; ++t) {
                   out.lse_of(t, h) = right[static_cast<std::size_t>(h * v.p().lse_stride_head + t + 1)];
                 }
               }
             }
           }),
           {},
           "have the LSE of the next query"},
          {"rows_past_keys_not_empty",
           "more queries than keys: the first queries see key 0",
           {kShortKeys},
           with_keys([](const HostView&, HostRow& r) {
             if (r.k_len > 0) r.hi = std::max<int64_t>(r.hi, 1);
           }),
           {"allow_short_kv: true"},
           "see no key, so O must be 0"}};
}

}  // namespace

FaultClass length_faults() { return {"lengths", joined({wrong_key_lengths(), shifted_rows()})}; }

FaultClass empty_row_faults() {
  const auto on_empty = [](const std::function<void(OutView&, const HostRow&, int d)>& change) {
    return with_output([change](const HostView& v, OutView& out) {
      for (const HostRow& r : v.rows()) {
        if (r.lo >= r.hi) change(out, r, v.p().head_dim);
      }
    });
  };
  return {"empty rows",
          {{"lse_plus_infinity",
            "LSE of a row without keys is +inf",
            {kShortKeys},
            on_empty([](OutView& out, const HostRow& r, int) { out.lse_of(r.token, r.head) = INFINITY; }),
            {},
            "see no key"},
           {"lse_finite",
            "LSE of a row without keys is the lowest finite number",
            {kShortKeys},
            on_empty([](OutView& out, const HostRow& r, int) {
              out.lse_of(r.token, r.head) = std::numeric_limits<float>::lowest();
            }),
            {},
            "see no key"},
           {"nan_from_two_empty_states",
            "exp(-inf - -inf) when empty states are merged",
            {kShortKeys},
            on_empty([](OutView& out, const HostRow& r, int d) {
              for (int c = 0; c < d; ++c) out.set_o(r.token, r.head, c, NAN);
            }),
            {},
            "division by a softmax denominator of 0"},
           {"output_not_written",
            "O of a row without keys keeps what was there",
            {kShortKeys},
            unwritten([](const HostView&, const HostRow& r) { return r.lo >= r.hi; }),
            {},
            "not written when the launch ended"},
           {"mean_of_values",
            "softmax over only masked keys is uniform",
            {kShortKeys},
            with_output([](const HostView& v, OutView& out) {
              const std::vector<HostRow> rows = v.rows();
              const std::vector<RowAnswer> mean = answers(uniform(v), v);
              for (std::size_t n = 0; n < rows.size(); ++n) {
                if (rows[n].lo >= rows[n].hi) set_row(out, rows[n], mean[n]);
              }
            }),
            {},
            "see no key, so O must be 0"}}};
}

}  // namespace attnbench
