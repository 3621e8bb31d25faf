// Faults of what shares a scale, of O in e4m3, of new rows for a quantised cache, and of rows that hold K and V.

#include <algorithm>

#include "harness/ops/op.h"
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define SCALES_E4M3 "dtype: bf16, q_dtype: e4m3, kv_dtype: e4m3, heads: 8/2, head_dim: 64, mask: causal, "
#define SCALES_SEQS "batch: q5s70_q3s100_q20s33}"
constexpr const char* kQPerHead =
    "{kv: paged, block_size: 16, " SCALES_E4M3 "q_descales: per_head, " SCALES_SEQS;
constexpr const char* kQPerTensor =
    "{kv: paged, block_size: 16, " SCALES_E4M3 "q_descales: per_tensor, " SCALES_SEQS;
constexpr const char* kKPerHead =
    "{kv: paged, block_size: 16, " SCALES_E4M3 "k_descales: per_head, " SCALES_SEQS;
constexpr const char* kKPerTensor =
    "{kv: paged, block_size: 16, " SCALES_E4M3 "k_descales: per_tensor, " SCALES_SEQS;
constexpr const char* kVPerHead =
    "{kv: paged, block_size: 16, " SCALES_E4M3 "v_descales: per_head, " SCALES_SEQS;
constexpr const char* kVPerTensor =
    "{kv: paged, block_size: 16, " SCALES_E4M3 "v_descales: per_tensor, " SCALES_SEQS;
constexpr const char* kVPerChannel =
    "{kv: paged, block_size: 16, " SCALES_E4M3 "v_descales: per_channel, " SCALES_SEQS;
constexpr const char* kPerToken =
    "{kv: paged, block_size: 16, " SCALES_E4M3 "k_descales: per_token, v_descales: per_token, " SCALES_SEQS;
constexpr const char* kInt8PerToken =
    "{kv: packed, dtype: bf16, kv_dtype: int8, heads: 8/2, head_dim: 64, v_descales: per_token, " SCALES_SEQS;
constexpr const char* kBlocksOfRows =
    "{kv: packed, dtype: bf16, q_dtype: int8, kv_dtype: int8_k, heads: 8/2, head_dim: 64, q_descale_rows: 8, "
    "k_descale_rows: 8, batch: q25s70_q20s100_q20s33}";

#define SCALES_APPENDED \
  "{op: kv_append, dtype: bf16, heads: 3, head_dim: 64, block_size: 16, kv_dtype: e4m3, "
#define SCALES_TOKENS "padding_tokens: 3, batch: q5s21_q1s40_q16s16}"
constexpr const char* kAppendPerTensor =
    SCALES_APPENDED "k_descales: per_tensor, v_descales: per_tensor, " SCALES_TOKENS;
constexpr const char* kAppendPerChannel = SCALES_APPENDED "v_descales: per_channel, " SCALES_TOKENS;

constexpr const char* kE4m3Output =
    "{kv: packed, dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, out_dtype: e4m3, batch: q5s70_q20s20}";
constexpr const char* kE4m3Merge =
    "{op: merge_states, dtype: bf16, heads: 4, head_dim: 64, states: 3, out_dtype: e4m3, batch: q37}";

#define SCALES_IN_CALL \
  "append: in_call, dtype: bf16, kv_dtype: e4m3, heads: 4/2, head_dim: 64, mask: causal, "
constexpr const char* kRounded =
    "{kv: contiguous, " SCALES_IN_CALL "new_dtype: dtype, batch: q1s21_q3s40_q5s33}";
constexpr const char* kStored =
    "{kv: contiguous, " SCALES_IN_CALL "new_dtype: cache, batch: q1s21_q3s40_q5s33}";

#define SCALES_LATENT "{op: kv_append, dtype: bf16, heads: 1, head_dim: 64, head_dim_v: 512, block_size: 16, "
constexpr const char* kOneRowCase = SCALES_LATENT "one_row: true, batch: q5s21_q1s40_q16s16}";
constexpr const char* kTwoWidths = SCALES_LATENT "batch: q5s21_q1s40_q16s16}";

#define SCALES_E5M2 "dtype: bf16, kv_dtype: e5m2, heads: 8/2, head_dim: 64, "
constexpr const char* kE5m2 = "{kv: paged, block_size: 16, " SCALES_E5M2 "mask: causal, batch: q5s70_q20s20}";
constexpr const char* kE5m2InCall =
    "{kv: contiguous, " SCALES_E5M2 "mask: causal, append: in_call, batch: q1s21_q3s40_q5s33}";
constexpr const char* kE5m2Append =
    "{op: kv_append, block_size: 16, " SCALES_E5M2 "batch: q5s21_q1s40_q16s16}";

/// The descales of one tensor in the parameters of a launch.
struct Descales {
  const float*& at;
  int64_t& outer;
  int64_t& head;
};

Descales of_q(AttentionParams& p) { return {p.q_descale, p.q_descale_stride_outer, p.q_descale_stride_head}; }
Descales of_k(AttentionParams& p) { return {p.k_descale, p.k_descale_stride_outer, p.k_descale_stride_head}; }
Descales of_v(AttentionParams& p) { return {p.v_descale, p.v_descale_stride_outer, p.v_descale_stride_head}; }

/// A launch that reads descales per (sequence, KV head) where fewer are given: what it finds behind these are
/// other numbers.
Tamper::Fault read_per_sequence(Descales (*of)(AttentionParams&)) {
  return with_params([of](Tamper& t, AttentionParams& p) {
    const Descales d = of(p);
    const auto right = t.read<float>(d.at, (p.num_heads_kv - 1) * d.head + 1);
    std::vector<float> found;
    for (int32_t b = 0; b < p.batch; ++b) {
      for (int32_t h = 0; h < p.num_heads_kv; ++h) {
        const float other = 1.0f + 0.25f * static_cast<float>(b + (d.head == 0 ? h : 0));
        found.push_back(right[static_cast<std::size_t>(h * d.head)] * other);
      }
    }
    d.at = t.put(found);
    d.outer = p.num_heads_kv;
    d.head = 1;
  });
}

/// All channels of V have the descale of their head's first.
void use_first_channel(Tamper& t, AttentionParams& p) {
  auto scales = t.read<float>(p.v_descale, p.num_heads_kv * p.v_descale_stride_head);
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = scales[i - i % static_cast<std::size_t>(p.v_descale_stride_head)];
  p.v_descale = t.put(scales);
}

/// Rows of packed V have the descales of the rows before; the first rows of sequences keep theirs.
void use_row_before(Tamper& t, AttentionParams& p) {
  if (p.cu_seqlens_k == nullptr) return;  // the same keys in pages, for an invariant
  const auto begins = t.read<int32_t>(p.cu_seqlens_k, p.batch + 1);
  const int64_t row = p.v_descale_stride_outer;
  auto scales = t.read<float>(p.v_descale, begins.back() * row);
  for (std::size_t b = 0; b + 1 < begins.size(); ++b) {
    if (begins[b] == begins[b + 1]) continue;
    std::copy_backward(scales.begin() + begins[b] * row, scales.begin() + (begins[b + 1] - 1) * row,
                       scales.begin() + begins[b + 1] * row);
  }
  p.v_descale = t.put(scales);
}

std::vector<Fault> shared_scales() {
  return {{"q_descale_read_per_sequence",
           "descales of q are read per (sequence, head) where sequences share them",
           {kQPerHead},
           read_per_sequence(of_q),
           {"q_descales: per_head"},
           "descales of q or K are read elsewhere"},
          {"q_descale_read_per_head",
           "one descale of q for all is read as one per head",
           {kQPerTensor},
           read_per_sequence(of_q),
           {"q_descales: per_tensor"},
           "descales of q or K are read elsewhere"},
          {"k_descale_read_per_sequence",
           "descales of K are read per (sequence, head) where sequences share them",
           {kKPerHead},
           read_per_sequence(of_k),
           {"k_descales: per_head"},
           "descales of q or K are read elsewhere"},
          {"k_descale_read_per_head",
           "one descale of K for all is read as one per head",
           {kKPerTensor},
           read_per_sequence(of_k),
           {"k_descales: per_tensor"},
           "descales of q or K are read elsewhere"},
          {"v_descale_read_per_sequence",
           "descales of V are read per (sequence, head) where sequences share them",
           {kVPerHead},
           read_per_sequence(of_v),
           {"v_descales: per_head"},
           "descales of V are read elsewhere"},
          {"v_descale_read_per_head",
           "one descale of V for all is read as one per head",
           {kVPerTensor},
           read_per_sequence(of_v),
           {"v_descales: per_tensor"},
           "descales of V are read elsewhere"},
          {"e4m3_v_descale_of_channel_0",
           "one descale of V per KV head, that of its first channel",
           {kVPerChannel},
           with_params(use_first_channel),
           {"v_descales: per_channel"},
           "V has the descale of channel 0"},
          {"k_row_descale_of_a_block",
           "one descale of K per block, that of its first row",
           {kPerToken},
           with_params([](Tamper&, AttentionParams& p) { p.k_descale_stride_outer = 0; }),
           {"k_descales: per_token"},
           "K has the descale of the first token of its page"},
          {"v_row_descale_of_a_block",
           "one descale of V per block, that of its first row",
           {kPerToken},
           with_params([](Tamper&, AttentionParams& p) { p.v_descale_stride_outer = 0; }),
           {"v_descales: per_token"},
           "V has the descale of the first token of its page"},
          {"v_row_descale_of_the_row_before",
           "each row of V has the descale of the row before",
           {kInt8PerToken},
           with_params(use_row_before),
           {"v_descales: per_token"},
           "V has the descale of the token before"},
          {"v_row_descales_read_per_channel",
           "descales of int8 V are read per channel where rows have them",
           {kInt8PerToken},
           with_params([](Tamper&, AttentionParams& p) { p.features &= ~uint64_t{kVTokenScales}; }),
           {"v_descales: per_token"}},
          {"q_descale_of_twice_the_rows",
           "twice as many queries as should share a descale",
           {kBlocksOfRows},
           with_params([](Tamper&, AttentionParams& p) { p.q_descale_rows *= 2; }),
           {"q_descale_rows"},
           "Q has the descale of blocks of 16 rows"},
          {"k_descale_of_twice_the_rows",
           "twice as many keys as should share a descale",
           {kBlocksOfRows},
           with_params([](Tamper&, AttentionParams& p) { p.k_descale_rows *= 2; }),
           {"k_descale_rows"},
           "K has the descale of blocks of 16 rows"},
          {"append_scale_read_per_head",
           "one scale for all heads is read as one per head",
           {kAppendPerTensor},
           with_append([](Tamper& t, KvAppendParams& p) {
             const float scale = t.read<float>(p.k_scale.given, 1).front();
             std::vector<float> found;
             for (int32_t h = 0; h < p.num_heads_kv; ++h)
               found.push_back(scale * (1.0f + 0.25f * static_cast<float>(h)));
             p.k_scale.given = t.put(found);
             p.k_scale.given_stride_head = 1;
           }),
           {"k_descales: per_tensor", "v_descales: per_tensor"},
           "perhaps it has another scale"},
          {"append_e4m3_scale_of_channel_0",
           "all channels of a head have the scale of its first",
           {kAppendPerChannel},
           with_append([](Tamper&, KvAppendParams& p) { p.v_scale.given_stride_channel = 0; }),
           {"v_descales: per_channel"},
           "the scale of channel 0"}};
}

/// Gives a launch of attention or merge_states another scale of O.
Tamper::Fault with_out_scale(float (*to)(float scale)) {
  return with_op([to](Tamper& t, OpParams& op) {
    const float*& scale = traits_of(op.op).merges ? op.merge_states.out_scale : op.attention.out_scale;
    scale = t.put(std::vector<float>{to(t.read<float>(scale, 1).front())});
  });
}

std::vector<Fault> e4m3_outputs() {
  return {{"out_scale_ignored",
           "O is rounded to e4m3 as it is",
           {kE4m3Output, kE4m3Merge},
           with_out_scale([](float) { return 1.0f; }),
           {"out_dtype: e4m3"},
           "O is not divided by its scale"},
          {"out_scale_multiplied",
           "O is multiplied by its scale",
           {kE4m3Output, kE4m3Merge},
           with_out_scale([](float scale) { return 1.0f / scale; }),
           {},
           "O is multiplied by its scale"},
          {"out_without_saturation",
           "what is past 448 becomes NaN",
           {kE4m3Output},
           afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams& p) {
             auto out = t.read<unsigned char>(p.out, p.total_q * p.out_stride_token);
             for (unsigned char& x : out) x |= (x & 0x7f) == 0x7e ? 0x7f : 0;
             t.write(p.out, out);
           }),
           {"out_dtype: e4m3"},
           "leave the range of a type"},
          {"out_scale_1_percent_off",
           "O is divided by 1.01 times its scale",
           {kE4m3Output, kE4m3Merge},
           with_out_scale([](float scale) { return scale * 1.01f; }),
           {},
           "O has a factor of 0.99"}};
}

std::vector<Fault> new_rows() {
  return {{"in_call_new_rows_not_divided",
           "new rows are rounded to the cache's type as they come",
           {kRounded},
           [](Tamper& t, const OpParams& op) {
             AttentionParams p = op.attention;
             const auto ones = [&](int64_t outer) {
               return t.put(std::vector<float>(static_cast<std::size_t>(p.batch * outer), 1.0f));
             };
             p.k_descale = ones(p.k_descale_stride_outer);
             p.v_descale = ones(p.v_descale_stride_outer);
             if (const KernelStatus s = t.launch(p); s != KernelStatus::kOk) return s;
             p = op.attention;
             p.features &= ~uint64_t{kAppend | kAppendQuantised};
             return t.launch(p);
           },
           {"new_dtype: dtype"},
           "scales of K and V are not applied"},
          {"in_call_stored_rows_divided_again",
           "new rows that are in the cache's type are divided by its descale",
           {kStored},
           with_params([](Tamper& t, AttentionParams& p) {
             const auto as_numbers = [&](const void* from, int64_t stride) {
               const int64_t n = (p.total_new + 1) * stride;  // with a row of padding, if there is one
               const auto stored = t.read<unsigned char>(from, p.total_new * stride);
               std::vector<uint16_t> out(static_cast<std::size_t>(n));
               for (std::size_t i = 0; i < stored.size(); ++i)
                 out[i] = float_to_bf16(e4m3_to_float(stored[i]));
               return t.put(out);
             };
             p.k_new = as_numbers(p.k_new, p.k_new_stride_token);
             p.v_new = as_numbers(p.v_new, p.v_new_stride_token);
             p.dtype_k_new = p.dtype_v_new = DType::kBf16;
           }),
           {"new_dtype: cache"},
           "divided by their scales again"}};
}

/// Takes e5m2 for e4m3.
template <class Params>
void as_e4m3(Tamper&, Params& p) {
  p.features ^= kE5m2Kv | kE4m3Kv;
  p.dtype_k = p.dtype_v = DType::kE4m3;
}

std::vector<Fault> e5m2_caches() {
  const auto ones = [](Tamper& t, const AttentionParams& p, int64_t outer) {
    return t.put(std::vector<float>(static_cast<std::size_t>(p.batch * outer), 1.0f));
  };
  return {{"e5m2_read_as_e4m3",
           "K and V in e5m2 are read as e4m3",
           {kE5m2},
           with_params(as_e4m3<AttentionParams>),
           {"kv_dtype: e5m2"},
           "in e5m2 are read as e4m3"},
          {"e5m2_k_descale_ignored",
           "K in e5m2 is taken as stored",
           {kE5m2},
           with_params(
               [ones](Tamper& t, AttentionParams& p) { p.k_descale = ones(t, p, p.k_descale_stride_outer); }),
           {"kv_dtype: e5m2"},
           "descales of K are not applied"},
          {"e5m2_v_descale_ignored",
           "V in e5m2 is taken as stored",
           {kE5m2},
           with_params(
               [ones](Tamper& t, AttentionParams& p) { p.v_descale = ones(t, p, p.v_descale_stride_outer); }),
           {"kv_dtype: e5m2"},
           "descales of V are not applied"},
          {"in_call_e5m2_as_e4m3",
           "new rows for a cache in e5m2 are rounded to e4m3, and the whole cache is read so",
           {kE5m2InCall},
           with_params(as_e4m3<AttentionParams>),
           {},
           "in e5m2 are read as e4m3"},
          {"append_e5m2_as_e4m3",
           "new rows for a cache in e5m2 are rounded to e4m3",
           {kE5m2Append},
           with_append(as_e4m3<KvAppendParams>),
           {"kv_dtype: e5m2"},
           "the other type of e4m3 and e5m2"}};
}

std::vector<Fault> latent_rows() {
  return {{"one_row_key_first",
           "the key stands before its value",
           {kOneRowCase},
           with_append([](Tamper&, KvAppendParams& p) {
             p.features &= ~uint64_t{kOneRow};
             p.k_cache = p.v_cache;
             p.v_cache =
                 static_cast<char*>(p.v_cache) + p.head_dim * static_cast<int64_t>(dtype_size(p.dtype_k));
           }),
           {"one_row: true"}},
          {"append_values_as_wide_as_keys",
           "of a value, as many channels as a key has are written",
           {kTwoWidths, kOneRowCase},
           with_append([](Tamper&, KvAppendParams& p) {
             p.features &= ~uint64_t{kHeadDimV | kOneRow};
             p.head_dim_v = p.head_dim;
           }),
           {"head_dim_v"},
           "of V are not written"}};
}

}  // namespace

FaultClass scale_faults() {
  return {"scales and rows",
          joined({shared_scales(), e4m3_outputs(), new_rows(), latent_rows(), e5m2_caches()})};
}

}  // namespace attnbench
