// Features that a kernel accepts and ignores, if no other class has them. The result is wrong but plausible.
#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define SMALL "dtype: bf16, heads: 8/2, head_dim: 64"
#define SEQS "batch: q5s70_q3s100_q20s33}"
constexpr const char* kPackedUnmasked =
    "{kv: packed, dtype: bf16, heads: 8/2, head_dim: 64, mask: none, " SEQS;
constexpr const char* kSingles = "{kv: packed, dtype: fp32, heads: 8/2, head_dim: 64, mask: causal, " SEQS;
constexpr const char* kHalfs = "{kv: packed, dtype: fp16, heads: 8/2, head_dim: 64, mask: causal, " SEQS;
constexpr const char* kScaled = "{kv: packed, " SMALL ", mask: causal, softmax_scale: 0.3, " SEQS;
constexpr const char* kBiased = "{kv: packed, " SMALL ", mask: causal, alibi: per_head, " SEQS;
constexpr const char* kAlibiSqrt =
    "{kv: packed, " SMALL ", mask: causal, alibi: per_head, alibi_sqrt: true, " SEQS;
constexpr const char* kSecondQueries =
    "{kv: packed, " SMALL ", mask: causal, qv: true, softmax_scale: 0.125, " SEQS;
constexpr const char* kRightWindow = "{kv: packed, " SMALL ", mask: none, window: \"-1,5\", " SEQS;
constexpr const char* kGapsBetween = "{kv: packed, gap_tokens: 20, " SMALL ", mask: none, " SEQS;
constexpr const char* kQueryGaps = "{kv: packed, gap_queries: 20, " SMALL ", mask: causal, " SEQS;
constexpr const char* kQueryGapsUnmasked =
    "{kv: paged, block_size: 16, gap_queries: 5, " SMALL ", mask: none, " SEQS;
constexpr const char* kPaddedPages = "{kv: paged, block_size: 16, leftpad: 21, " SMALL ", mask: none, " SEQS;
constexpr const char* kTableRows =
    "{kv: paged, block_size: 16, block_table_rows: shuffled, " SMALL ", mask: none, batch: 4q2s60}";
constexpr const char* kIdlePages =
    "{kv: paged, block_size: 16, " SMALL ", page_layout: shuffled, mask: none, " SEQS;
constexpr const char* kPagesInOrder =
    "{kv: paged, block_size: 16, " SMALL ", page_layout: contiguous, mask: none, " SEQS;
constexpr const char* kHeadsOutside =
    "{kv: paged, block_size: 16, kv_layout: hnd, " SMALL ", mask: none, " SEQS;
constexpr const char* kShared =
    "{kv: paged, block_size: 16, " SMALL
    ", page_layout: shared_prefix, shared_prefix: 32, mask: none, batch: q5s70_q3s100_q20s40}";
constexpr const char* kCache =
    "{kv: contiguous, leftpad: 9, cache_batch_idx: shuffled, " SMALL ", mask: causal, " SEQS;
constexpr const char* kInt8Keys =
    "{kv: paged, block_size: 16, kv_dtype: int8_k, " SMALL ", mask: none, " SEQS;
constexpr const char* kFullProbs = "{kv: packed, probs: true, " SMALL ", mask: causal, " SEQS;
constexpr const char* kNewTokens =
    "{kv: contiguous, append: in_call, new_tokens: 7, " SMALL ", mask: causal, batch: q3s40_q5s33_q1s21}";
constexpr const char* kPartlyTurned =
    "{op: kv_append, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, rotary: neox, rotary_dim: 32, "
    "batch: q5s21_q1s40_q16s16}";
constexpr const char* kMixedAppend =
    "{op: kv_append, kv_dtype: int8_k, scales: given, dtype: bf16, heads: 3, head_dim: 64, block_size: 16, "
    "batch: q5s21_q1s40_q16s16}";
constexpr const char* kStates =
    "{op: merge_states, dtype: bf16, partial_dtype: fp32, heads: 4, head_dim: 64, states: 3, batch: q37}";
constexpr const char* kShortStates =
    "{op: merge_states, dtype: bf16, partial_dtype: same, heads: 4, head_dim: 64, states: 3, batch: q37}";

Tamper::Fault read_as(DType type, Feature feature) {
  return with_params([=](Tamper&, AttentionParams& p) {
    p.features = (p.features & ~uint64_t{kBf16 | kFp16 | kFp32}) | feature;
    p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_out = type;
  });
}

/// All channels turn: the tables get further columns, with one fixed angle.
void turn_all(Tamper& t, KvAppendParams& p) {
  const auto half = static_cast<std::size_t>(p.rotary.dim / 2);
  const auto width = static_cast<std::size_t>(p.head_dim / 2);
  const auto wider = [&](const float* from, float angle) {
    const auto rows = t.read<float>(from, int64_t{p.rotary.positions} * (p.rotary.dim / 2));
    std::vector<float> out(static_cast<std::size_t>(p.rotary.positions) * width, angle);
    for (std::size_t r = 0; r * half < rows.size(); ++r)
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(r * half), half,
                  out.begin() + static_cast<std::ptrdiff_t>(r * width));
    return t.put(out);
  };
  p.rotary.cos = wider(p.rotary.cos, 0.8f);
  p.rotary.sin = wider(p.rotary.sin, 0.6f);
  p.rotary.dim = p.head_dim;
}

std::vector<Fault> ignored_in_types() {
  return {{"bf16_read_as_fp16",
           "bits of bf16 are taken as fp16",
           {kPackedUnmasked},
           read_as(DType::kFp16, kFp16),
           {"dtype: bf16"},
           "bits of bf16 are read as fp16"},
          {"fp16_read_as_bf16",
           "bits of fp16 are taken as bf16",
           {kHalfs},
           read_as(DType::kBf16, kBf16),
           {"dtype: fp16"},
           "bits of fp16 are read as bf16"},
          {"fp32_output_in_16_bits",
           "O has the digits of bf16",
           {kSingles},
           with_output([](const HostView& v, OutView& out) {
             for (const HostRow& r : v.rows()) {
               for (int c = 0; c < v.p().head_dim; ++c) {
                 const float o = out.o(r.token, r.head, c);
                 out.set_o(r.token, r.head, c, round_to(DType::kBf16, o));
               }
             }
           }),
           {"dtype: fp32"},
           "O is rounded to bf16"},
          {"last_channels_left_out",
           "scores are of the first 48 of 64 channels",
           {kPackedUnmasked},
           with_params([](Tamper&, AttentionParams& p) {
             p.head_dim -= 16;
             p.features |= kHeadDimV;
           }),
           {"head_dim"},
           "the last 16 channels"},
          {"int8_k_descale_of_row_0",
           "one descale of K for all rows",
           {kInt8Keys},
           with_params(
               [](Tamper&, AttentionParams& p) { p.k_descale_stride_block = p.k_descale_stride_outer = 0; }),
           {"kv_dtype: int8_k"},
           "the first token of its page"}};
}

std::vector<Fault> ignored_in_scores() {
  return {
      known("full_mask_taken_as_causal", "without a mask, queries see nothing behind the diagonal",
            {kPackedUnmasked}, {"mask: none"}),
      {"keys_as_many_as_queries",
       "cross attention sees no more keys than there are queries",
       {kPackedUnmasked},
       with_answers([](const HostView&, reference::Problem& x) {
         for (std::size_t b = 0; b < x.k_lens.size(); ++b) x.k_lens[b] = std::min(x.k_lens[b], x.q_lens[b]);
       }),
       {"mask: none"}},
      known("window_right_ignored", "all keys behind the diagonal are seen", {kRightWindow}, {"window"}),
      known("softmax_scale_ignored", "1 / sqrt(D), whatever is given", {kScaled}, {"softmax_scale: 0.3"}),
      known("alibi_ignored", "no bias", {kBiased}, {"alibi: per_head"}),
      known("alibi_sqrt_ignored", "the distance itself, not its square root", {kAlibiSqrt},
            {"alibi_sqrt: true"}),
      known("qv_ignored", "scores are of q.k alone", {kSecondQueries}, {"qv: true"}),
      known("qv_unscaled", "qv.v is added to a score that has been scaled", {kSecondQueries}, {"qv: true"}),
      {"qv_of_the_next_head",
       "query head h has the second query of head h + 1",
       {kSecondQueries},
       with_params([](Tamper& t, AttentionParams& p) {
         if (!(p.features & kQv)) return;
         const auto size = static_cast<std::ptrdiff_t>(dtype_size(p.dtype_q));
         auto qv = t.read<unsigned char>(p.qv, p.total_q * p.qv_stride_token * size);
         for (int64_t i = 0; i < p.total_q; ++i) {
           const auto row = qv.begin() + i * p.qv_stride_token * size;
           std::rotate(row, row + p.qv_stride_head * size, row + p.num_heads_q * p.qv_stride_head * size);
         }
         p.qv = t.put(qv);
       }),
       {"qv: true"},
       "has qv of head h + 1"},
      {"probs_ignored",
       "no probabilities are returned",
       {kFullProbs},
       with_params([](Tamper&, AttentionParams& p) {
         p.probs = nullptr;
         p.features &= ~uint64_t{kProbs};
       }),
       {"probs: true"}}};
}

void all_rows_queried(Tamper&, AttentionParams& p) {
  p.seqused_q = nullptr;
  p.features &= ~uint64_t{kSequsedQ};
}

std::vector<Fault> ignored_in_pages() {
  return {{"packed_boundary_one_early",
           "the keys of each sequence but the first begin one row early",
           {kPackedUnmasked},
           with_params([](Tamper& t, AttentionParams& p) {
             if (!(p.features & kPackedKv)) return;  // an invariant's relaunch with pages
             auto cu = t.read<int32_t>(p.cu_seqlens_k, p.batch + 1);
             for (std::size_t b = 1; b + 1 < cu.size(); ++b) --cu[b];
             p.cu_seqlens_k = t.put(cu);
           }),
           {"kv: packed"},
           "begin one row early"},
          {"seqused_ignored",
           "keys up to the next sequence's first, unused rows included",
           {kGapsBetween},
           with_params([](Tamper&, AttentionParams& p) {
             if (!(p.features & kPackedKv)) return;
             p.seqused_k = nullptr;
             p.features &= ~uint64_t{kPartialKv};
           }),
           {"gap_tokens"},
           "must not be read"},
          {"seqused_q_ignored",
           "all rows up to the next sequence's first are queries, so that diagonals move",
           {kQueryGaps},
           with_params(all_rows_queried),
           {"gap_queries"}},
          {"unused_queries_computed",
           "rows behind a sequence's queries are computed, too; without a mask they change no other row",
           {kQueryGapsUnmasked},
           with_params(all_rows_queried),
           {"gap_queries"}},
          {"pages_taken_in_order",
           "page i of the batch is block i of the pool",
           {kIdlePages},
           with_params([](Tamper& t, AttentionParams& p) {
             change_table(t, p, [](const HostView& v, std::vector<int32_t>& table) {
               int32_t next = 0;
               for (int b = 0; b < v.p().batch; ++b) {
                 for (int64_t i = 0; i < pages_of(v, b); ++i)
                   table[static_cast<std::size_t>(b * v.p().block_table_stride + i)] = next++;
               }
             });
           }),
           {"kv: paged", "page_layout: shuffled"},
           "must not be read"},
          {"pages_begin_at_block_0",
           "pages in order are taken to begin at the pool's first block for every sequence",
           {kPagesInOrder},
           with_params([](Tamper& t, AttentionParams& p) {
             change_table(t, p, [](const HostView& v, std::vector<int32_t>& table) {
               for (int b = 0; b < v.p().batch; ++b) {
                 for (int64_t i = 0; i < pages_of(v, b); ++i)
                   table[static_cast<std::size_t>(b * v.p().block_table_stride + i)] =
                       static_cast<int32_t>(i);
               }
             });
           }),
           {"page_layout: contiguous"},
           "must not be read"},
          {"hnd_read_as_nhd",
           "(head, token, channel) is taken as (token, head, channel)",
           {kHeadsOutside},
           with_params([](Tamper&, AttentionParams& p) {
             if (!(p.features & kHnd)) return;
             p.features &= ~uint64_t{kHnd};
             p.k_stride_token = p.v_stride_token = int64_t{p.num_heads_kv} * p.head_dim;
             p.k_stride_head = p.v_stride_head = p.head_dim;
           }),
           {"kv_layout: hnd"},
           "must not be read"},
          {"shared_pages_of_one_sequence_alone",
           "sequences but the first find their own last page where the shared one is",
           {kShared},
           with_params([](Tamper& t, AttentionParams& p) {
             change_table(t, p, [](const HostView& v, std::vector<int32_t>& table) {
               for (int b = 1; b < v.p().batch; ++b) {
                 const auto row = static_cast<std::size_t>(b * v.p().block_table_stride);
                 table[row] = table[row + static_cast<std::size_t>(pages_of(v, b)) - 1];
               }
             });
           }),
           {"page_layout: shared_prefix", "shared_prefix"},
           "must not be read"}};
}

std::vector<Fault> ignored_in_caches() {
  return {{"leftpad_ignored",
           "keys are taken to begin at row 0 of the cache",
           {kCache},
           with_params([](Tamper&, AttentionParams& p) { p.cache_leftpad = nullptr; }),
           {"leftpad"},
           "must not be read"},
          {"padded_pages_begin_at_row_0",
           "keys are taken to begin at row 0 of a sequence's first block",
           {kPaddedPages},
           with_params([](Tamper&, AttentionParams& p) {
             p.cache_leftpad = nullptr;
             p.features &= ~uint64_t{kPagedLeftpad};
           }),
           {"leftpad"},
           "must not be read"},
          {"table_row_of_another_sequence",
           "sequence b is taken to have the row of block_table that sequence b + 1 has",
           {kTableRows},
           with_params([](Tamper& t, AttentionParams& p) {
             if (!(p.features & kPagedBatchIdx)) return;
             const HostView view(t, p);
             std::vector<int32_t> rows = view.cache_rows;
             for (int b = 0; b < p.batch; ++b) {
               const int other = (b + 1) % p.batch;
               if (view.k_len(other) < view.k_len(b)) continue;  // its last entries are junk
               rows[static_cast<std::size_t>(b)] = view.cache_rows[static_cast<std::size_t>(other)];
             }
             p.cache_batch_idx = t.put(rows);
           }),
           {"block_table_rows: shuffled"},
           "of block_table of sequence"},
          {"cache_batch_idx_ignored",
           "sequence b is taken to have row b of the cache",
           {kCache},
           with_params([](Tamper&, AttentionParams& p) { p.cache_batch_idx = nullptr; }),
           {"kv: contiguous", "cache_batch_idx: shuffled"},
           "must not be read"},
          {"in_call_as_many_as_queries",
           "a sequence's last new tokens are appended, one per query",
           {kNewTokens},
           with_params([](Tamper& t, AttentionParams& p) {
             const auto cu = t.read<int32_t>(p.cu_seqlens_q, p.batch + 1);
             p.cu_seqlens_new = t.put(cu);
             p.total_new = cu.back();
           }),
           {"new_tokens"},
           "rows change places"}};
}

std::vector<Fault> ignored_in_other_ops() {
  return {{"rotary_dim_ignored",
           "all channels turn",
           {kPartlyTurned},
           with_op([](Tamper& t, OpParams& op) { turn_all(t, op.kv_append); }),
           {"rotary_dim"},
           "perhaps all channels turn"},
          {"int8_k_append_of_channel_0",
           "all channels of K have the scale of the first",
           {kMixedAppend},
           with_op([](Tamper&, OpParams& op) { op.kv_append.k_scale.given_stride_channel = 0; }),
           {"kv_dtype: int8_k", "scales: given"},
           "the scale of channel 0"},
          {"fp32_states_read_in_16_bits",
           "partial O in fp32 is taken as bf16",
           {kStates},
           with_op([](Tamper&, OpParams& op) {
             op.merge_states.dtype_partial = DType::kBf16;
             op.merge_states.features = (op.merge_states.features & ~uint64_t{kFp32}) | kBf16;
           }),
           {"partial_dtype: fp32"}},
          {"states_of_16_bits_rounded_to_8",
           "partial O in bf16 loses its last three digits",
           {kShortStates},
           with_op([](Tamper& t, OpParams& op) {
             MergeStatesParams& p = op.merge_states;
             auto o = t.read<uint16_t>(p.partial_out, p.num_states * p.partial_stride_state);
             for (uint16_t& x : o) x &= 0xfff8;
             p.partial_out = t.put(o);
           }),
           {"partial_dtype: same"}}};
}

}  // namespace

FaultClass ignored_faults() {
  return {"ignored", joined({ignored_in_types(), ignored_in_scores(), ignored_in_pages(), ignored_in_caches(),
                             ignored_in_other_ops()})};
}

}  // namespace attnbench
