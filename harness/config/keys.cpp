#include "harness/config/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <memory>
#include <utility>

#include "harness/config/batch_spec.h"
#include "harness/config/batch_value.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kMaxHeads = 1024;
constexpr int32_t kMaxHeadDim = 576;
constexpr int32_t kMaxHeadDimV = 512;
constexpr int32_t kMaxRotaryDim = 256;

/// A key whose values are words, each standing for a value of a field.
template <class T>
SweepKey word_key(std::string name, std::string doc, T CaseParams::*member,
                  std::vector<std::pair<std::string, T>> words) {
  std::vector<std::string> names;
  for (const auto& [word, value] : words) names.push_back(word);
  const auto read = [=](const Field& field, uint64_t) -> KeyValue {
    if (!field.node.IsScalar()) field.fail_expected(fmt::format("one of: {}", fmt::join(names, ", ")));
    const std::string& text = field.node.Scalar();
    for (const auto& [word, value] : words) {
      if (text == word) return {word, [member, v = value](CaseParams& p) { p.*member = v; }};
    }
    field.fail(fmt::format("unknown value '{}'{}", text.substr(0, 60), suggest(text, names)));
  };
  return {std::move(name), std::move(doc), {{"enum", names}}, read};
}

SweepKey integer_key(std::string name, std::string doc, int32_t CaseParams::*member, int32_t lo, int32_t hi) {
  const auto read = [=](const Field& field, uint64_t) -> KeyValue {
    const auto value = static_cast<int32_t>(read_integer(field, lo, hi));
    return {fmt::format("{}", value), [=](CaseParams& p) { p.*member = value; }};
  };
  return {std::move(name), std::move(doc), {{"type", "integer"}, {"minimum", lo}, {"maximum", hi}}, read};
}

SweepKey bool_key(std::string name, std::string doc, bool CaseParams::*member) {
  const auto read = [=](const Field& field, uint64_t) -> KeyValue {
    const bool value = read_bool(field);
    return {value ? "true" : "false", [=](CaseParams& p) { p.*member = value; }};
  };
  return {std::move(name), std::move(doc), {{"type", "boolean"}}, read};
}

/// Decimal digits, with '-' where `negative`, without leading zeros; nullopt for all else and on overflow.
std::optional<int64_t> parse_digits(std::string_view text, bool negative) {
  const std::string_view digits = negative && text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

KeyValue read_heads(const Field& field, uint64_t) {
  const std::string expected = fmt::format(
      "\"Q/KV\" such as 32/8 (query heads / KV heads, each from 1 to {}), or one integer for both",
      kMaxHeads);
  if (!field.node.IsScalar()) field.fail_expected(expected);
  const std::string_view text = field.node.Scalar();
  const std::size_t slash = text.find('/');
  const std::optional<int64_t> q = parse_digits(text.substr(0, slash), false);
  const std::optional<int64_t> kv = slash == text.npos ? q : parse_digits(text.substr(slash + 1), false);
  const auto in_range = [](const std::optional<int64_t>& n) { return n && *n >= 1 && *n <= kMaxHeads; };
  if (!in_range(q) || !in_range(kv)) field.fail_expected(expected);
  if (*q % *kv != 0) {
    field.fail(fmt::format("got '{}', but the query heads must be a multiple of the KV heads", text));
  }
  const auto apply = [q = static_cast<int32_t>(*q), kv = static_cast<int32_t>(*kv)](CaseParams& p) {
    p.num_heads_q = q;
    p.num_heads_kv = kv;
  };
  return {fmt::format("{}/{}", *q, *kv), apply};
}

KeyValue read_window(const Field& field, uint64_t) {
  const std::string expected = fmt::format(
      "none, or a text \"left,right\" such as \"4095,0\" (integers from -1, unlimited, to {}); a list is an "
      "axis, so "
      "write \"L,R\" and not [L, R]",
      kMaxSeqLen);
  if (!field.node.IsScalar()) field.fail_expected(expected);
  const std::string_view text = field.node.Scalar();
  std::optional<int64_t> left = -1;
  std::optional<int64_t> right = -1;
  if (text != "none") {
    const std::size_t comma = text.find(',');
    if (comma == text.npos) field.fail_expected(expected);
    std::string_view after = text.substr(comma + 1);
    if (after.starts_with(' ')) after.remove_prefix(1);
    left = parse_digits(text.substr(0, comma), true);
    right = parse_digits(after, true);
  }
  const auto in_range = [](const std::optional<int64_t>& n) { return n && *n >= -1 && *n <= kMaxSeqLen; };
  if (!in_range(left) || !in_range(right)) field.fail_expected(expected);
  const bool unlimited = *left == -1 && *right == -1;
  const auto apply = [l = static_cast<int32_t>(*left), r = static_cast<int32_t>(*right)](CaseParams& p) {
    p.window_left = l;
    p.window_right = r;
  };
  return {unlimited ? "none" : fmt::format("{},{}", *left, *right), apply};
}

/// Kernels take scale and cap as float: a value that is 0 or infinite there would mean something else.
bool is_positive_float(double x) { return static_cast<float>(x) > 0.0f && x <= 3.4e38; }

KeyValue read_softmax_scale(const Field& field, uint64_t) {
  if (field.node.IsScalar() && field.node.Scalar() == "default") {
    return {"default", [](CaseParams& p) { p.softmax_scale.reset(); }};
  }
  const std::optional<double> value = read_number(field);
  if (!value || !is_positive_float(*value)) {
    field.fail_expected("a number over 0 that a float can hold, or default (1/sqrt(head_dim))");
  }
  return {fmt::format("{}", *value), [v = *value](CaseParams& p) { p.softmax_scale = v; }};
}

KeyValue read_softcap(const Field& field, uint64_t) {
  const std::optional<double> value = read_number(field);
  if (!value || !(*value == 0.0 || is_positive_float(*value))) {
    field.fail_expected("a number from 0 (no cap) up that a float can hold");
  }
  const double cap = *value + 0.0;  // -0 becomes 0
  return {fmt::format("{}", cap), [=](CaseParams& p) { p.softcap = cap; }};
}

KeyValue read_share(const Field& field, uint64_t) {
  const std::optional<double> value = read_number(field);
  if (!value || !(*value >= 0.0 && *value <= 1.0)) field.fail_expected("a number from 0 to 1");
  const double share = *value + 0.0;  // -0 becomes 0
  return {fmt::format("{}", share), [=](CaseParams& p) { p.empty_states = share; }};
}

/// A share that stays over 0 and under 1 as the float that kernels take.
KeyValue read_dropout(const Field& field, uint64_t) {
  const std::optional<double> value = read_number(field);
  if (!value || !(*value == 0.0 || (is_positive_float(*value) && static_cast<float>(*value) < 1.0f))) {
    field.fail_expected("a number from 0 (none) up to, not including, 1");
  }
  const double share = *value + 0.0;  // -0 becomes 0
  return {fmt::format("{}", share), [=](CaseParams& p) { p.dropout = share; }};
}

KeyValue read_head_dim_v(const Field& field, uint64_t) {
  if (field.node.IsScalar() && field.node.Scalar() == "same") {
    return {"same", [](CaseParams& p) { p.head_dim_v = 0; }};
  }
  if (!is_plain_integer(field)) {
    field.fail_expected(fmt::format("an integer from 1 to {}, or same (head_dim)", kMaxHeadDimV));
  }
  const auto value = static_cast<int32_t>(read_integer(field, 1, kMaxHeadDimV));
  return {fmt::format("{}", value), [=](CaseParams& p) { p.head_dim_v = value; }};
}

KeyValue read_batch_key(const Field& field, uint64_t seed) {
  // Shared: a batch may hold a million lengths, and settings are copied.
  const auto seqs = std::make_shared<const std::vector<SeqLen>>(read_batch(field, seed));
  return {format_batch_spec(*seqs), [=](CaseParams& p) { p.seqs = *seqs; }};
}

Json heads_schema() {
  const Json number = {{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxHeads}};
  const Json text = {{"type", "string"}, {"pattern", "^[1-9][0-9]{0,3}(/[1-9][0-9]{0,3})?$"}};
  return {{"anyOf", {number, text}}};
}

Json window_schema() {
  return {{"type", "string"}, {"pattern", "^(none|(-1|0|[1-9][0-9]*), ?(-1|0|[1-9][0-9]*))$"}};
}

Json head_dim_v_schema() {
  const Json number = {{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxHeadDimV}};
  return {{"anyOf", {number, {{"const", "same"}}}}};
}

Json softmax_scale_schema() {
  const Json number = {{"type", "number"}, {"exclusiveMinimum", 0}};
  return {{"anyOf", {number, {{"const", "default"}}}}};
}

std::vector<SweepKey> make_keys() {
  std::vector<std::pair<std::string, Profile>> profiles;
  for (Profile p : {Profile::kNormal, Profile::kPeaked, Profile::kOutlier, Profile::kLarge, Profile::kHuge}) {
    profiles.emplace_back(profile_name(p), p);
  }
  using P = CaseParams;
  return {
      word_key<Op>("op", "What is computed.", &P::op,
                   {{op_name(Op::kAttention), Op::kAttention},
                    {op_name(Op::kKvAppend), Op::kKvAppend},
                    {op_name(Op::kMergeStates), Op::kMergeStates}}),
      word_key<KvSource>(
          "kv",
          "Where keys and values lie: packed by cu_seqlens_k, in blocks of a pool, or in a cache with "
          "a row per sequence.",
          &P::kv,
          {{"packed", KvSource::kPacked},
           {"paged", KvSource::kPaged},
           {"contiguous", KvSource::kContiguous}}),
      {"batch",
       "Lengths of the sequences: [COUNT]qLEN[k|m][sTOTAL[k|m]] joined by '_' (2q2k_32q1s1k), or a mapping "
       "of lengths "
       "(or q and s, or q and context) and a count.",
       batch_schema(), read_batch_key},
      word_key<DType>("dtype", "Element type of queries, keys, values and outputs.", &P::dtype,
                      {{dtype_name(DType::kBf16), DType::kBf16},
                       {dtype_name(DType::kFp16), DType::kFp16},
                       {dtype_name(DType::kFp32), DType::kFp32}}),
      word_key<std::optional<DType>>(
          "q_dtype", "Type of queries where they are quantised, with descales.", &P::q_dtype,
          {{"same", std::nullopt}, {"e4m3", DType::kE4m3}, {"int8", DType::kInt8}}),
      word_key<KvDType>("kv_dtype", "Type of keys and values where they are quantised, with descales.",
                        &P::kv_dtype,
                        {{"same", KvDType::kSame},
                         {"e4m3", KvDType::kE4m3},
                         {"int8", KvDType::kInt8},
                         {"int8_k", KvDType::kInt8K}}),
      {"heads", "Query heads / KV heads: 32/8. One integer N means N/N.", heads_schema(), read_heads},
      integer_key("head_dim", "Channels of a head.", &P::head_dim, 1, kMaxHeadDim),
      {"head_dim_v", "Channels of values and outputs, where they differ from head_dim.", head_dim_v_schema(),
       read_head_dim_v},
      bool_key("v_is_k_view", "Values are the first head_dim_v channels of the keys, where those lie.",
               &P::v_is_k_view),
      word_key<bool>("mask", "causal: bottom-right aligned, query i of n sees the keys up to i + len_k - n.",
                     &P::causal, {{"none", false}, {"causal", true}}),
      {"window",
       "Sliding window \"left,right\": keys seen before and after the diagonal, -1 for unlimited; or none. A "
       "list is "
       "an axis of windows.",
       window_schema(), read_window},
      word_key<Expired>("expired",
                        "What lies left of every query's window: values; nan: poison; freed: poison, and the "
                        "ids of such blocks lead nowhere.",
                        &P::expired,
                        {{expired_name(Expired::kKept), Expired::kKept},
                         {expired_name(Expired::kNan), Expired::kNan},
                         {expired_name(Expired::kFreed), Expired::kFreed}}),
      {"softmax_scale", "Factor of q.k; default: 1/sqrt(head_dim).", softmax_scale_schema(),
       read_softmax_scale},
      {"softcap",
       "Scores become softcap * tanh(score / softcap); 0: none.",
       {{"type", "number"}, {"minimum", 0}},
       read_softcap},
      word_key<Alibi>(
          "alibi", "Linear bias by distance from the diagonal: slopes per head, or per sequence and head.",
          &P::alibi,
          {{"none", Alibi::kNone}, {"per_head", Alibi::kPerHead}, {"per_sequence", Alibi::kPerSequence}}),
      bool_key("alibi_sqrt", "ALiBi by the square root of the distance.", &P::alibi_sqrt),
      bool_key("sinks", "One logit per query head, a term of the denominator without a value.", &P::sinks),
      integer_key("num_splits",
                  "Parts that the keys are cut into, merged at the end; 0: the kernel's choice.",
                  &P::num_splits, 0, 1024),
      bool_key("probs", "Return the attention probabilities, float32, before dropout.", &P::probs),
      {"dropout",
       "Share of the attention weights that are dropped, by a counter-based mask; 0: none.",
       {{"type", "number"}, {"minimum", 0}, {"exclusiveMaximum", 1}},
       read_dropout},
      integer_key("block_size", "Tokens of a block of a paged cache.", &P::block_size, 1, 65536),
      word_key<KvLayout>("kv_layout",
                         "Order in a block: nhd (token, head, channel) or hnd (head, token, channel).",
                         &P::kv_layout, {{"nhd", KvLayout::kNhd}, {"hnd", KvLayout::kHnd}}),
      word_key<PageLayout>("page_layout", "Where a sequence's blocks lie in the pool.", &P::page_layout,
                           {{"contiguous", PageLayout::kContiguous},
                            {"shuffled", PageLayout::kShuffled},
                            {"shared_prefix", PageLayout::kSharedPrefix}}),
      integer_key("shared_prefix",
                  "page_layout shared_prefix: leading tokens whose pages all sequences share, a multiple of "
                  "block_size.",
                  &P::shared_prefix, 0, kMaxSeqLen),
      word_key<Path>("path",
                     "One call; or launches that make it up: cascade (shared prefix once, suffixes, merged), "
                     "split_decode (decodes, then the rest), dcp (keys spread over virtual ranks, merged).",
                     &P::path,
                     {{path_name(Path::kOneCall), Path::kOneCall},
                      {path_name(Path::kCascade), Path::kCascade},
                      {path_name(Path::kSplitDecode), Path::kSplitDecode},
                      {path_name(Path::kDcp), Path::kDcp}}),
      integer_key("decode_threshold", "split_decode: most queries of a sequence that counts as a decode.",
                  &P::decode_threshold, 1, 1024),
      integer_key("dcp_ranks", "dcp: virtual ranks that the keys are spread over.", &P::dcp_ranks, 2, 64),
      integer_key("dcp_interleave", "dcp: neighbouring keys that lie on one rank.", &P::dcp_interleave, 1,
                  65536),
      integer_key("gap_tokens", "Packed keys: unused rows after each sequence (seqused_k is passed).",
                  &P::gap_tokens, 0, 1024),
      integer_key("leftpad", "Contiguous cache: most unused rows before a sequence's first key.", &P::leftpad,
                  0, 1024),
      word_key<bool>("cache_batch_idx", "Contiguous cache: which row of the cache a sequence has.",
                     &P::shuffled_cache, {{"identity", false}, {"shuffled", true}}),
      word_key<bool>("append",
                     "attention: in_call writes new keys and values to the cache before it attends.",
                     &P::append, {{"none", false}, {"in_call", true}}),
      integer_key("new_tokens", "append: most new tokens of a sequence; 0: as many as it has queries.",
                  &P::new_tokens, 0, 65536),
      word_key<Rotary>(
          "rotary",
          "Rotary embedding of new keys and queries: channels pair up in halves (neox) or as neighbours.",
          &P::rotary,
          {{"none", Rotary::kNone}, {"neox", Rotary::kNeox}, {"interleaved", Rotary::kInterleaved}}),
      integer_key("rotary_dim", "Channels that the rotary embedding turns, an even number; 0: all.",
                  &P::rotary_dim, 0, kMaxRotaryDim),
      word_key<RotaryQ>(
          "rotary_q",
          "Position of query i: diagonal, i + len_k - len_q; from_cache_seqlens, cache_seqlens + i; "
          "at_cache_seqlens, that for all. cache_seqlens: len_k without the new tokens.",
          &P::rotary_q,
          {{rotary_q_name(RotaryQ::kDiagonal), RotaryQ::kDiagonal},
           {rotary_q_name(RotaryQ::kFromCacheSeqlens), RotaryQ::kFromCacheSeqlens},
           {rotary_q_name(RotaryQ::kAtCacheSeqlens), RotaryQ::kAtCacheSeqlens}}),
      integer_key("padding_tokens", "kv_append: tokens whose slot is -1, spread over the batch.",
                  &P::padding_tokens, 0, 4096),
      word_key<Scales>(
          "scales",
          "kv_append into a quantised cache: scales given, computed per (token, head), or so for "
          "K and given for V.",
          &P::scales,
          {{scales_name(Scales::kGiven), Scales::kGiven},
           {scales_name(Scales::kPerToken), Scales::kPerToken},
           {scales_name(Scales::kPerTokenK), Scales::kPerTokenK}}),
      integer_key("states", "merge_states: partial states of each row.", &P::states, 1, 64),
      {"empty_states",
       "merge_states: share of the states that have seen no key (LSE -inf, O poison).",
       {{"type", "number"}, {"minimum", 0}, {"maximum", 1}},
       read_share},
      word_key<bool>("lse_layout",
                     "merge_states: order of the partial LSEs, (state, head, token) or (state, token, head).",
                     &P::lse_token_major, {{"head_major", false}, {"token_major", true}}),
      word_key<bool>("partial_dtype", "Type of the partial O of states: fp32, or the type of the output.",
                     &P::partial_fp32, {{"fp32", true}, {"same", false}}),
      word_key<Profile>("data", "Kind of input values.", &P::data, profiles),
      bool_key("allow_short_kv", "Accept sequences with fewer keys than queries under a causal mask.",
               &P::allow_short_kv),
  };
}

}  // namespace

const std::vector<SweepKey>& sweep_keys() {
  static const std::vector<SweepKey> keys = make_keys();
  return keys;
}

const SweepKey* find_sweep_key(std::string_view name) {
  for (const SweepKey& key : sweep_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::vector<std::string> sweep_key_names(const std::vector<std::string>& more) {
  std::vector<std::string> names;
  for (const SweepKey& key : sweep_keys()) names.push_back(key.name);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

}  // namespace attnbench
