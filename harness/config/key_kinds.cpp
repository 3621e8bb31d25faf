#include "harness/config/key_kinds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "harness/config/batch_spec.h"
#include "harness/config/batch_value.h"
#include "harness/config/json_number.h"
#include "harness/config/serving_value.h"

namespace attnbench {
namespace {

using Json = SweepKey::Json;

/// Decimal digits without leading zeros; nullopt for all else and on overflow.
std::optional<int64_t> parse_digits(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
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
  const std::optional<int64_t> q = parse_digits(text.substr(0, slash));
  const std::optional<int64_t> kv = slash == text.npos ? q : parse_digits(text.substr(slash + 1));
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

std::string window_text(int64_t left, int64_t right) {
  return left == -1 && right == -1 ? "none" : fmt::format("{},{}", left, right);
}

KeyValue read_window(const Field& field, uint64_t) {
  const std::string expected = fmt::format(
      "none, drawn, or a text \"left,right\" such as \"4095,0\" or \"4k,0\" (integers from -1, unlimited, to {}); "
      "a list is an axis, so write \"L,R\" and not [L, R]",
      kMaxSeqLen);
  if (!field.node.IsScalar()) field.fail_expected(expected);
  const std::string_view text = field.node.Scalar();
  if (text == "drawn") return {"drawn", [](CaseParams& p) { p.window_drawn = true; }};
  std::optional<int64_t> left = -1;
  std::optional<int64_t> right = -1;
  if (text != "none") {
    const std::size_t comma = text.find(',');
    if (comma == text.npos) field.fail_expected(expected);
    std::string_view after = text.substr(comma + 1);
    if (after.starts_with(' ')) after.remove_prefix(1);
    left = parse_length(text.substr(0, comma));
    right = parse_length(after);
  }
  const auto in_range = [](const std::optional<int64_t>& n) { return n && *n >= -1 && *n <= kMaxSeqLen; };
  if (!in_range(left) || !in_range(right)) field.fail_expected(expected);
  const auto apply = [l = static_cast<int32_t>(*left), r = static_cast<int32_t>(*right)](CaseParams& p) {
    p.window_left = l;
    p.window_right = r;
    p.window_drawn = false;
  };
  return {window_text(*left, *right), apply};
}

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

/// A value for each step that is chosen.
std::vector<KeyValue> read_serving_batch(const Field& field, uint64_t seed) {
  const auto spec = std::make_shared<const ServingSpec>(read_serving(field, seed));
  std::vector<KeyValue> values;
  for (int64_t i = 0; i < spec->cases(); ++i) {
    values.push_back({fmt::format("{{serving: {}}}", serving_text(*spec)), [=](CaseParams& p) {
                        p.seqs.clear();
                        p.serving = {spec, i};
                      }});
  }
  return values;
}

std::vector<KeyValue> read_batch_key(const Field& field, uint64_t seed) {
  if (field.node.IsMap() && field.node["serving"].IsDefined()) {
    const std::vector<Field> entries = entries_of(field, "'batch'");
    for (const Field& e : entries) {
      if (e.key != "serving")
        e.fail("stands beside 'serving'; write it into the mapping of 'serving', or drop one");
    }
    return read_serving_batch(entries.front(), seed);
  }
  std::vector<KeyValue> values;
  for (std::vector<SeqLen>& batch : read_batches(field, seed)) {
    // Shared: a batch may hold a million lengths, and settings are copied.
    const auto seqs = std::make_shared<const std::vector<SeqLen>>(std::move(batch));
    values.push_back({format_batch_spec(*seqs), [=](CaseParams& p) {
                        p.seqs = *seqs;
                        p.serving.reset();
                      }});
  }
  return values;
}

void report_batch(Json& j, const CaseParams& p) {
  j["batch"] = format_batch_spec(p.seqs);
  int64_t total_q = 0, total_k = 0;
  int32_t max_q = 0, max_k = 0;
  for (const SeqLen& s : p.seqs) {
    total_q += s.q;
    total_k += s.k;
    max_q = std::max(max_q, s.q);
    max_k = std::max(max_k, s.k);
  }
  j["num_seqs"] = p.seqs.size();
  j["total_q"] = total_q;
  j["total_k"] = total_k;
  j["max_q"] = max_q;
  j["max_k"] = max_k;
  j["served"] = p.served ? served_json(*p.served) : Json();
}

}  // namespace

bool is_positive_float(double x) { return static_cast<float>(x) > 0.0f && x <= 3.4e38; }

SweepKey integer_key(std::string name, std::string doc, int32_t CaseParams::*member, int32_t lo, int32_t hi) {
  SweepKey key = field_key(std::move(name), std::move(doc), member);
  key.schema = {{"type", "integer"}, {"minimum", lo}, {"maximum", hi}};
  key.read = [=](const Field& field, uint64_t) -> KeyValue {
    const auto value = static_cast<int32_t>(read_integer(field, lo, hi));
    return {fmt::format("{}", value), [=](CaseParams& p) { p.*member = value; }};
  };
  key.text = [member](const CaseParams& p) { return fmt::format("{}", p.*member); };
  key.report = [member, name = key.name](Json& j, const CaseParams& p) { j[name] = p.*member; };
  return key;
}

SweepKey tokens_key(std::string name, std::string doc, int32_t CaseParams::*member, int32_t lo, int32_t hi) {
  SweepKey key = integer_key(std::move(name), std::move(doc), member, lo, hi);
  key.schema = length_schema(key.schema);
  key.values = fmt::format("{} to {}", lo, hi);
  key.tokens = true;
  key.read = [=](const Field& field, uint64_t) -> KeyValue {
    const auto value = static_cast<int32_t>(read_length(field, lo, hi));
    return {fmt::format("{}", value), [=](CaseParams& p) { p.*member = value; }};
  };
  return key;
}

SweepKey bool_key(std::string name, std::string doc, bool CaseParams::*member) {
  SweepKey key = field_key(std::move(name), std::move(doc), member);
  key.schema = {{"type", "boolean"}};
  key.read = [=](const Field& field, uint64_t) -> KeyValue {
    const bool value = read_bool(field);
    return {value ? "true" : "false", [=](CaseParams& p) { p.*member = value; }};
  };
  key.text = [member](const CaseParams& p) { return p.*member ? "true" : "false"; };
  key.report = [member, name = key.name](Json& j, const CaseParams& p) { j[name] = p.*member; };
  return key;
}

SweepKey number_key(std::string name, std::string doc, double CaseParams::*member, bool (*is_legal)(double),
                    const std::string& expected, Json schema) {
  SweepKey key = field_key(std::move(name), std::move(doc), member);
  key.schema = std::move(schema);
  key.read = [=](const Field& field, uint64_t) -> KeyValue {
    const std::optional<double> value = read_number(field);
    if (!value || !is_legal(*value)) field.fail_expected(expected);
    const double x = *value + 0.0;  // -0 becomes 0
    return {fmt::format("{}", x), [=](CaseParams& p) { p.*member = x; }};
  };
  key.text = [member](const CaseParams& p) { return fmt::format("{}", p.*member); };
  key.report = [member, name = key.name](Json& j, const CaseParams& p) {
    j[name] = finite_or_null(p.*member);
  };
  return key;
}

SweepKey heads_key() {
  SweepKey key =
      field_key("heads", "query heads and KV heads, 1 to 1024; Q a multiple of KV", &CaseParams::num_heads_q);
  const Json number = {{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxHeads}};
  const Json text = {{"type", "string"}, {"pattern", "^[1-9][0-9]{0,3}(/[1-9][0-9]{0,3})?$"}};
  key.schema = {{"anyOf", {number, text}}};
  key.values = "`Q/KV` such as `32/8`, or `N` for `N/N`";
  key.read = read_heads;
  key.text = [](const CaseParams& p) { return fmt::format("{}/{}", p.num_heads_q, p.num_heads_kv); };
  key.reset = [](CaseParams& p) {
    p.num_heads_q = CaseParams{}.num_heads_q;
    p.num_heads_kv = CaseParams{}.num_heads_kv;
  };
  key.report = [](Json& j, const CaseParams& p) {
    j["num_heads_q"] = p.num_heads_q;
    j["num_heads_kv"] = p.num_heads_kv;
  };
  return key;
}

SweepKey window_key() {
  SweepKey key =
      field_key("window",
                "keys seen before and after the diagonal; -1: unlimited. In quotes: `[L, R]` "
                "would be an axis. `drawn`: both sides from 0 to the longest key length - 1, by the "
                "file's seed and the case",

                &CaseParams::window_left);
  const std::string side = fmt::format("(-1|0|[1-9][0-9]*|{})", kSuffixedLength);
  key.schema = {{"type", "string"}, {"pattern", fmt::format("^(none|drawn|{0}, ?{0})$", side)}};
  key.tokens = true;
  key.values = "`\"L,R\"`, `none`, `drawn`";
  key.read = read_window;
  key.text = [](const CaseParams& p) {
    return p.window_drawn ? "drawn" : window_text(p.window_left, p.window_right);
  };
  key.reset = [](CaseParams& p) {
    p.window_left = p.window_right = -1;
    p.window_drawn = false;
  };
  key.report = [](Json& j, const CaseParams& p) {
    j["window_left"] = p.window_left;
    j["window_right"] = p.window_right;
  };
  return key;
}

SweepKey softmax_scale_key() {
  SweepKey key =
      field_key("softmax_scale", "factor of q.k; `default` is 1/sqrt(head_dim)", &CaseParams::softmax_scale);
  const Json number = {{"type", "number"}, {"exclusiveMinimum", 0}};
  key.schema = {{"anyOf", {number, {{"const", "default"}}}}};
  key.values = "number > 0, `default`";
  key.read = read_softmax_scale;
  key.text = [](const CaseParams& p) {
    return p.softmax_scale ? fmt::format("{}", *p.softmax_scale) : "default";
  };
  key.report = [](Json& j, const CaseParams& p) { j["softmax_scale"] = finite_or_null(p.softmax_scale); };
  return key;
}

SweepKey head_dim_v_key() {
  SweepKey key = field_key("head_dim_v",
                           "channels of values and outputs, where they differ from `head_dim` (192/128, "
                           "64/512)",
                           &CaseParams::head_dim_v);
  const Json number = {{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxHeadDimV}};
  key.schema = {{"anyOf", {number, {{"const", "same"}}}}};
  key.values = fmt::format("1 to {}, `same`", kMaxHeadDimV);
  key.read = read_head_dim_v;
  key.text = [](const CaseParams& p) { return p.head_dim_v == 0 ? "same" : fmt::format("{}", p.head_dim_v); };
  key.report = [](Json& j, const CaseParams& p) { j["head_dim_v"] = p.dim_v(); };
  return key;
}

SweepKey batch_key() {
  SweepKey key =
      field_key("batch",
                "query and key lengths of the sequences: a spec such as `2q2k_32q1s1k`; or a mapping of "
                "`lengths`, of `q` and `s`, or of `q` and `context`, and a count; or `{serving: {...}}`, "
                "steps of a server",
                &CaseParams::seqs);
  key.schema = batch_schema();
  key.values = "a spec or a mapping";
  key.read_several = read_batch_key;
  key.text = [](const CaseParams& p) { return format_batch_spec(p.seqs); };
  key.report = report_batch;
  return key;
}

}  // namespace attnbench
