// Faults of appending in the call of attention, and of quantising appended rows.
#include <algorithm>
#include <cmath>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define IN_CALL "append: in_call, dtype: bf16, heads: 4/2, head_dim: 64, mask: causal"
constexpr const char* kContiguousInCall =
    "{kv: contiguous, " IN_CALL ", leftpad: 4, batch: q1s21_q3s40_q5s33}";
constexpr const char* kPagedInCall = "{kv: paged, block_size: 16, " IN_CALL ", batch: q1s21_q3s40_q5s33}";
constexpr const char* kNeoxInCall = "{kv: contiguous, " IN_CALL ", rotary: neox, batch: q3s40_q5s33}";
constexpr const char* kInterleavedInCall =
    "{kv: contiguous, " IN_CALL ", rotary: interleaved, batch: q3s40_q5s33}";
#define FEWER "{kv: contiguous, " IN_CALL ", rotary: neox, new_tokens: 2, batch: q3s40_q5s33, "
constexpr const char* kOnDiagonal = FEWER "rotary_q: diagonal}";
constexpr const char* kFromCache = FEWER "rotary_q: from_cache_seqlens}";
constexpr const char* kAtCache = FEWER "rotary_q: at_cache_seqlens}";
constexpr const char* kOneSequence = "{kv: contiguous, " IN_CALL ", rotary: neox, batch: q5s33}";

#define QUANTISED "{op: kv_append, dtype: bf16, heads: 3, head_dim: 64, block_size: 16, padding_tokens: 3, "
constexpr const char* kE4m3Cache = QUANTISED "kv_dtype: e4m3, batch: q5s21_q1s40_q16s16}";
constexpr const char* kInt8Cache = QUANTISED "kv_dtype: int8, batch: q5s21_q1s40_q16s16}";
constexpr const char* kComputedE4m3 =
    QUANTISED "kv_dtype: e4m3, scales: per_token, batch: q5s21_q1s40_q16s16}";
constexpr const char* kComputedE5m2 =
    QUANTISED "kv_dtype: e5m2, scales: per_token, batch: q5s21_q1s40_q16s16}";
constexpr const char* kInt8KeysCache =
    QUANTISED "kv_dtype: int8_k, scales: per_token, batch: q5s21_q1s40_q16s16}";
constexpr const char* kTurned =
    QUANTISED "kv_dtype: int8, scales: per_token_k, rotary: neox, batch: q5s21_q1s40_q16s16}";

/// The parameters of a launch that only attends, once new rows are in the cache.
AttentionParams without_append(AttentionParams p) {
  p.features &= ~uint64_t{kAppend | kRotary | kRotaryQ};
  return p;
}

/// Queries are turned by another rule. The tables get more rows, because that rule may need them.
Tamper::Fault turned_by(RotaryQ rule) {
  return with_params([rule](Tamper& t, AttentionParams& p) {
    const int64_t half = p.rotary.dim / 2;
    auto cos = t.read<float>(p.rotary.cos, p.rotary.positions * half),
         sin = t.read<float>(p.rotary.sin, p.rotary.positions * half);
    for (int64_t i = 0; i < p.max_seqlen_q * half; ++i) {  // one position more is one rotation more
      const std::size_t last = cos.size() - static_cast<std::size_t>(half);
      const auto one = static_cast<std::size_t>(half + i % half);
      cos.push_back(cos[last] * cos[one] - sin[last] * sin[one]);
      sin.push_back(sin[last] * cos[one] + cos[last] * sin[one]);
    }
    p.rotary.cos = t.put(cos);
    p.rotary.sin = t.put(sin);
    p.rotary.positions += p.max_seqlen_q;
    p.features |= kRotaryQ;
    if (rule == RotaryQ::kDiagonal) p.features ^= kRotaryQ;
    p.rotary.q_position = rule;
  });
}

/// A launch that appends with changed parameters, then one that attends with the right ones.
Tamper::Fault appended_by(const std::function<void(Tamper&, AttentionParams&)>& change) {
  return [change](Tamper& t, const OpParams& op) {
    AttentionParams wrong = op.attention;
    change(t, wrong);
    if (const KernelStatus s = t.launch(wrong); s != KernelStatus::kOk) return s;
    return t.launch(without_append(op.attention));
  };
}

/// Overwrites the row behind each sequence's last key, if the cache has room for one more.
void write_past_the_end(Tamper& t, const AttentionParams& p) {
  const auto used = t.read<int32_t>(p.seqused_k, p.batch);
  const auto rows = p.cache_batch_idx ? t.read<int32_t>(p.cache_batch_idx, p.batch) : std::vector<int32_t>{};
  const auto leftpad = p.cache_leftpad ? t.read<int32_t>(p.cache_leftpad, p.batch) : std::vector<int32_t>{};
  for (std::size_t b = 0; b < used.size(); ++b) {
    const int64_t row = used[b] + (leftpad.empty() ? 0 : leftpad[b]);
    if (row >= p.cache_capacity) continue;
    const int64_t at =
        (rows.empty() ? static_cast<int64_t>(b) : rows[b]) * p.k_stride_block + row * p.k_stride_token;
    const std::size_t size = dtype_size(p.dtype_k);
    t.write(static_cast<const char*>(p.k_cache) + at * static_cast<int64_t>(size),
            std::vector<unsigned char>(size * static_cast<std::size_t>(p.head_dim), 0x3f));
  }
}

int64_t count_given(const KvAppendParams& p, const ScaleParams& s) {
  return (p.num_heads_kv - 1) * s.given_stride_head + (p.head_dim - 1) * s.given_stride_channel + 1;
}

/// Gives `s` changed scales.
void change_given(Tamper& t, const KvAppendParams& p, ScaleParams& s,
                  const std::function<void(std::vector<float>&)>& change) {
  auto scales = t.read<float>(s.given, count_given(p, s));
  change(scales);
  s.given = t.put(scales);
}

/// A quantised row of K.
struct Row {
  int64_t token;
  int32_t head;
  unsigned char* stored;  ///< head_dim numbers of one byte
  float* computed;        ///< its scale; null if scales are given
};
/// The right launch; then each quantised row of K is changed.
Tamper::Fault with_rows(const std::function<void(Tamper&, const KvAppendParams&, Row)>& change) {
  return afterwards<&OpParams::kv_append>([change](Tamper& t, const KvAppendParams& p) {
    const ScaleParams& s = p.k_scale;
    const auto slots = t.read<int64_t>(p.slot_mapping, p.num_tokens);
    auto cache = t.read<unsigned char>(p.k_cache, p.num_blocks * p.k_stride_block);
    auto scales = t.read<float>(s.computed, s.computed ? p.num_blocks * s.stride_block : 0);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] < 0) continue;
      const int64_t block = slots[i] / p.block_size;
      const int64_t token = slots[i] % p.block_size;
      for (int32_t h = 0; h < p.num_heads_kv; ++h) {
        const int64_t row = block * p.k_stride_block + token * p.k_stride_token + h * p.k_stride_head;
        const int64_t scale = block * s.stride_block + token * s.stride_token + h * s.stride_head;
        change(t, p,
               {static_cast<int64_t>(i), h, &cache[static_cast<std::size_t>(row)],
                s.computed ? &scales[static_cast<std::size_t>(scale)] : nullptr});
      }
    }
    t.write(p.k_cache, cache);
    if (s.computed) t.write(s.computed, scales);
  });
}

/// Each number of int8 keys with given scales is stored as stored(key / scale).
Tamper::Fault with_int8_keys(unsigned char (*stored)(float quotient)) {
  return with_rows([stored](Tamper& t, const KvAppendParams& p, Row r) {
    const auto size = static_cast<int64_t>(dtype_size(p.dtype_in));
    const int64_t from = (r.token * p.key_stride_token + r.head * p.key_stride_head) * size;
    const auto row = t.read<unsigned char>(static_cast<const char*>(p.key) + from, p.head_dim * size);
    const auto scales = t.read<float>(p.k_scale.given, count_given(p, p.k_scale));
    for (int32_t c = 0; c < p.head_dim; ++c) {
      const auto at =
          static_cast<std::size_t>(r.head * p.k_scale.given_stride_head + c * p.k_scale.given_stride_channel);
      r.stored[c] = stored(load_float(p.dtype_in, row.data(), c) / scales[at]);
    }
  });
}

std::vector<Fault> in_call_at_wrong_places() {
  return {{"in_call_to_batch_row_0",
           "new rows of all sequences enter the cache row of the first",
           {kContiguousInCall},
           appended_by([](Tamper& t, AttentionParams& p) {
             if (p.batch < 2) return;
             std::vector<int32_t> rows(static_cast<std::size_t>(p.batch), 0);
             if (p.cache_batch_idx) rows.assign(rows.size(), t.read<int32_t>(p.cache_batch_idx, 1)[0]);
             p.cache_batch_idx = t.put(rows);
           }),
           {},
           "rows change places"},
          {"in_call_leftpad_ignored",
           "new rows enter the cache as if there were no left padding",
           {kContiguousInCall},
           appended_by([](Tamper&, AttentionParams& p) { p.cache_leftpad = nullptr; }),
           {"leftpad"},
           "rows change places"},
          {"in_call_one_row_early",
           "new rows lie one row before their place",
           {kContiguousInCall, kPagedInCall},
           appended_by([](Tamper& t, AttentionParams& p) {
             change_lengths(t, p, [](int, int32_t k) { return k - 1; });
           }),
           {},
           "must not be read"},
          {"in_call_attends_first",
           "attention reads the cache before the new rows are in it",
           {kContiguousInCall, kPagedInCall},
           [](Tamper& t, const OpParams& op) {
             const AttentionParams& p = op.attention;
             if (const KernelStatus s = t.launch(without_append(p)); s != KernelStatus::kOk) return s;
             const OutView before = t.output(p);
             const KernelStatus s = t.launch(op);
             t.edit(p, [&](OutView& out) { out = before; });
             return s;
           },
           {"append: in_call"},
           "must not be read"},
          {"in_call_new_tokens_not_attended",
           "the cache is attended at its length before the append",
           {kContiguousInCall, kPagedInCall},
           [](Tamper& t, const OpParams& op) {
             if (const KernelStatus s = t.launch(op); s != KernelStatus::kOk) return s;
             AttentionParams p = without_append(op.attention);
             const auto cu = t.read<int32_t>(p.cu_seqlens_new, p.batch + 1);
             change_lengths(t, p, [&](int b, int32_t k) {
               const auto i = static_cast<std::size_t>(b);
               return k - (cu[i + 1] - cu[i]);
             });
             return t.launch(p);
           },
           {"append: in_call"},
           "the new tokens are not attended"},
          {"in_call_one_token_past_capacity",
           "a row is written behind each sequence's last",
           {kContiguousInCall},
           afterwards<&OpParams::attention>(
               [](Tamper& t, const AttentionParams& p) { write_past_the_end(t, p); }),
           {},
           "one token too many"}};
}

std::vector<Fault> in_call_wrong_rows() {
  const auto other_pairs = with_params([](Tamper&, AttentionParams& p) { p.rotary.interleaved ^= 1; });
  return {{"in_call_k_and_v_swapped",
           "new keys enter the cache of values, and the other way round",
           {kContiguousInCall, kPagedInCall},
           with_params([](Tamper&, AttentionParams& p) { std::swap(p.k_new, p.v_new); }),
           {},
           "belongs to the other tensor"},
          {"in_call_neox_for_interleaved",
           "halves pair up where neighbours should",
           {kInterleavedInCall},
           other_pairs,
           {},
           "in other pairs"},
          {"in_call_interleaved_for_neox",
           "neighbours pair up where halves should",
           {kNeoxInCall},
           other_pairs,
           {},
           "in other pairs"},
          {"in_call_position_off_by_the_cache_length",
           "positions count from the first new token",
           {kOneSequence},
           with_params([](Tamper& t, AttentionParams& p) {
             if (p.batch != 1) return;
             const int64_t half = p.rotary.dim / 2;
             const int64_t from = p.max_seqlen_k - p.max_seqlen_q;
             for (const float** table : {&p.rotary.cos, &p.rotary.sin}) {
               auto rows = t.read<float>(*table, p.rotary.positions * half);
               std::copy_n(rows.begin(), (p.rotary.positions - from) * half, rows.begin() + from * half);
               *table = t.put(rows);
             }
           }),
           {},
           "count from the first new token"},
          {"in_call_queries_not_rotated",
           "new keys are turned, queries are not",
           {kNeoxInCall},
           [](Tamper& t, const OpParams& op) {
             if (const KernelStatus s = t.launch(op); s != KernelStatus::kOk) return s;
             return t.launch(without_append(op.attention));
           },
           {"rotary: neox"},
           "queries are not turned"}};
}

}  // namespace

FaultClass in_call_faults() {
  return {"append in the call", joined({in_call_at_wrong_places(), in_call_wrong_rows()})};
}

FaultClass position_faults() {
  return {"positions of queries",
          {{"in_call_queries_on_the_diagonal",
            "query i is turned to i + len_k - len_q instead of cache_seqlens + i",
            {kFromCache},
            turned_by(RotaryQ::kDiagonal),
            {"rotary_q: from_cache_seqlens"},
            "query i is turned to position i + len_k - len_q"},
           {"in_call_queries_from_cache_seqlens",
            "query i is turned to cache_seqlens + i instead of i + len_k - len_q",
            {kOnDiagonal},
            turned_by(RotaryQ::kFromCacheSeqlens),
            {"rotary_q: diagonal"},
            "query i is turned to position cache_seqlens + i"},
           {"in_call_queries_past_cache_seqlens",
            "query i is turned to cache_seqlens + i instead of cache_seqlens",
            {kAtCache},
            turned_by(RotaryQ::kFromCacheSeqlens),
            {"rotary_q: at_cache_seqlens"},
            "query i is turned to position cache_seqlens + i"}}};
}

FaultClass quantised_append_faults() {
  return {"quantised append",
          {{"append_scale_ignored",
            "keys are rounded as they come",
            {kE4m3Cache},
            with_append([](Tamper& t, KvAppendParams& p) {
              change_given(t, p, p.k_scale, [](std::vector<float>& s) { s.assign(s.size(), 1.0f); });
            }),
            {"kv_dtype: e4m3"},
            "scales of K are not applied"},
           {"append_scale_inverted",
            "keys are multiplied by their scale",
            {kInt8Cache},
            with_append([](Tamper& t, KvAppendParams& p) {
              change_given(t, p, p.k_scale, [](std::vector<float>& scales) {
                for (float& s : scales) s = 1.0f / s;
              });
            }),
            {},
            "multiplied by their scales"},
           {"append_scales_swapped",
            "keys are divided by the scales of values, and the other way round",
            {kInt8Cache, kE4m3Cache},
            with_append([](Tamper&, KvAppendParams& p) { std::swap(p.k_scale, p.v_scale); }),
            {},
            "scale of the other tensor"},
           {"append_scale_of_another_head",
            "head h has the scale of head h + 1",
            {kE4m3Cache},
            with_append([](Tamper& t, KvAppendParams& p) {
              change_given(t, p, p.v_scale,
                           [](std::vector<float>& s) { std::rotate(s.begin(), s.begin() + 1, s.end()); });
            }),
            {},
            "the scale of head"},
           {"append_scale_of_channel_0",
            "all channels of a head have the scale of its first",
            {kInt8Cache},
            with_append([](Tamper&, KvAppendParams& p) { p.v_scale.given_stride_channel = 0; }),
            {"kv_dtype: int8"},
            "the scale of channel 0"},
           {"append_without_saturation",
            "what is past the largest number of the type wraps round",
            {kInt8Cache},
            with_int8_keys([](float x) { return static_cast<unsigned char>(std::lrint(x) & 0xff); }),
            {},
            "wrap round"},
           {"append_truncates",
            "numbers are rounded towards zero",
            {kInt8Cache},
            with_int8_keys([](float x) { return static_cast<unsigned char>(float_to_int8(std::trunc(x))); }),
            {},
            "cut off towards zero"},
           {"computed_scales_swapped",
            "scales of keys are stored as those of values, and the other way round",
            {kComputedE4m3},
            with_append([](Tamper&, KvAppendParams& p) { std::swap(p.k_scale, p.v_scale); }),
            {},
            "the computed scales of the other tensor"},
           {"computed_scale_of_another_type",
            "the largest magnitude is divided by 127 instead of 448",
            {kComputedE4m3},
            with_rows([](Tamper&, const KvAppendParams&, Row r) { *r.computed *= 448.0f / 127.0f; }),
            {},
            "over 127, not over 448"},
           {"computed_scale_of_the_other_float",
            "the largest magnitude is divided by 448, as in e4m3, instead of 57344",
            {kComputedE5m2},
            with_rows([](Tamper&, const KvAppendParams&, Row r) { *r.computed *= 57344.0f / 448.0f; }),
            {},
            "over 448, not over 57344"},
           {"computed_scale_stored_as_its_inverse",
            "1 / scale is stored",
            {kComputedE4m3, kInt8KeysCache},
            with_rows([](Tamper&, const KvAppendParams&, Row r) { *r.computed = 1.0f / *r.computed; }),
            {},
            "the inverse of computed scales"},
           {"computed_scale_not_stored",
            "a scale is computed and used, and not written",
            {kComputedE4m3, kInt8KeysCache},
            with_rows([](Tamper&, const KvAppendParams&, Row r) { *r.computed = NAN; }),
            {"scales: per_token"},
            "computed scales of K are not stored"},
           {"computed_scale_of_unrotated_keys",
            "scales are computed before the rotation",
            {kTurned},
            [](Tamper& t, const OpParams& op) {
              OpParams plain = op;
              plain.kv_append.features &= ~uint64_t{kRotary};
              if (const KernelStatus s = t.launch(plain); s != KernelStatus::kOk) return s;
              const KvAppendParams& p = op.kv_append;
              const auto scales = t.read<float>(p.k_scale.computed, p.num_blocks * p.k_scale.stride_block);
              const KernelStatus s = t.launch(op);
              t.write(p.k_scale.computed, scales);
              return s;
            },
            {"scales: per_token_k"},
            "of rows that are not rotated"}}};
}

}  // namespace attnbench
