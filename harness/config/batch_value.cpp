#include "harness/config/batch_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "harness/config/batch_product.h"
#include "harness/config/lengths.h"
#include "harness/config/serving_value.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
using Shape = LengthDistribution::Shape;

constexpr int64_t kLognormalClip = int64_t{1} << 20;  // default clip: 1..2^20 tokens
constexpr double kMaxSigma = 16.0;

/// X or Y of the mapping: a list with one length per sequence, or a distribution to draw from.
struct Lengths {
  std::vector<int64_t> list;  ///< empty: lengths are drawn
  LengthDistribution distribution;

  int64_t at(std::size_t i, uint64_t seed, LengthOf which) const {
    return list.empty() ? draw_length(distribution, seed, static_cast<uint32_t>(i), which) : list[i];
  }
};

/// A pair [lo, hi] of lengths.
std::pair<int64_t, int64_t> read_range(const Field& field) {
  if (!field.node.IsSequence() || field.node.size() != 2) field.fail_expected("two integers, [lo, hi]");
  const std::vector<Field> items = items_of(field);
  const int64_t lo = read_length(items[0], 0, kMaxSeqLen);
  const int64_t hi = read_length(items[1], 0, kMaxSeqLen);
  if (lo > hi)
    field.fail(fmt::format("[{}, {}] is the wrong way round, expected [lo, hi] with lo <= hi", lo, hi));
  return {lo, hi};
}

double read_within(const Field& field, double lo, double hi) {
  const std::optional<double> value = read_number(field);
  if (!value || *value < lo || *value > hi)
    field.fail_expected(fmt::format("a number from {} to {}", lo, hi));
  return *value;
}

/// The median of a distribution, which need not be whole.
double read_median(const Field& field) {
  const bool suffixed = is_length(field) && !read_number(field);
  return suffixed ? static_cast<double>(read_length(field, 1, kMaxSeqLen))
                  : read_within(field, 1.0, static_cast<double>(kMaxSeqLen));
}

const Field& require(const std::vector<Field>& entries, const char* key, const Field& mapping,
                     const char* example) {
  const Field* entry = find_entry(entries, key);
  if (entry == nullptr) mapping.fail(fmt::format("'{}' is missing, expected e.g. {}", key, example));
  return *entry;
}

LengthDistribution read_distribution(const Field& field) {
  const std::string where = fmt::format("the distribution of '{}'", field.key);
  const std::vector<Field> entries = entries_of(field, where);
  const Field* shape = nullptr;
  const Field* clip = nullptr;
  for (const Field& e : entries) {
    if (e.key == "clip") {
      clip = &e;
    } else if (e.key != "constant" && e.key != "uniform" && e.key != "lognormal") {
      fail_unknown_key(e, where, {"constant", "uniform", "lognormal", "clip"});
    } else if (shape != nullptr) {
      e.fail(fmt::format("stands beside '{}', expected one distribution", shape->key));
    } else {
      shape = &e;
    }
  }
  if (shape == nullptr) field.fail("names no distribution; allowed: constant, uniform, lognormal");

  LengthDistribution d;
  d.clip_hi = kMaxSeqLen;
  if (shape->key == "constant") {
    d.lo = read_length(*shape, 0, kMaxSeqLen);
  } else if (shape->key == "uniform") {
    d.shape = Shape::kUniform;
    std::tie(d.lo, d.hi) = read_range(*shape);
  } else {
    constexpr const char* example = "{median: 800, sigma: 1.0}";
    d.shape = Shape::kLognormal;
    const std::vector<Field> parts = entries_of(*shape, "'lognormal'");
    for (const Field& e : parts) {
      if (e.key != "median" && e.key != "sigma") fail_unknown_key(e, "'lognormal'", {"median", "sigma"});
    }
    d.median = read_median(require(parts, "median", *shape, example));
    d.sigma = read_within(require(parts, "sigma", *shape, example), 0.0, kMaxSigma);
    d.clip_lo = 1;
    d.clip_hi = kLognormalClip;
  }
  if (clip != nullptr) std::tie(d.clip_lo, d.clip_hi) = read_range(*clip);
  return d;
}

Lengths read_lengths(const Field& field) {
  Lengths lengths;
  if (field.node.IsSequence()) {
    for (const Field& item : items_of(field)) lengths.list.push_back(read_length(item, 0, kMaxSeqLen));
  } else if (field.node.IsMap()) {
    lengths.distribution = read_distribution(field);
  } else if (is_length(field)) {
    lengths.distribution.lo = read_length(field, 0, kMaxSeqLen);
    lengths.distribution.clip_hi = kMaxSeqLen;
  } else {
    field.fail_expected("an integer, a list of integers, or a distribution such as {uniform: [16, 512]}");
  }
  return lengths;
}

/// The number of sequences: `count`, or the size of the explicit lists, which must all agree.
std::size_t read_count(const Field& mapping, const Field* count, const std::vector<const Field*>& lengths) {
  std::optional<int64_t> n;
  if (count != nullptr) n = read_integer(*count, 0, kMaxBatch);
  for (const Field* l : lengths) {
    if (l == nullptr || !l->node.IsSequence()) continue;
    const auto size = static_cast<int64_t>(l->node.size());
    if (size > kMaxBatch) l->fail(fmt::format("lists {} sequences, at most {} are allowed", size, kMaxBatch));
    if (n && *n != size) l->fail(fmt::format("lists {} sequences, but there are to be {}", size, *n));
    n = size;
  }
  if (!n) mapping.fail("'count' is missing, expected the number of sequences, e.g. {lengths: 512, count: 4}");
  return static_cast<std::size_t>(*n);
}

/// For {q16, q32}, which YAML reads as a mapping of keys without values.
std::string list_hint(const std::vector<Field>& entries) {
  std::string keys;
  for (const Field& e : entries) keys += (keys.empty() ? "" : ", ") + e.key;
  return fmt::format("; braces make a mapping, several batches are a list: [{}]", keys);
}

std::vector<SeqLen> read_mapping(const Field& field, uint64_t file_seed) {
  const std::vector<Field> entries = entries_of(field, "'batch'");
  for (const Field& e : entries) {
    const std::vector<std::string> allowed = {"lengths", "q", "s", "context", "count", "seed"};
    if (std::find(allowed.begin(), allowed.end(), e.key) == allowed.end())
      fail_unknown_key(e, "'batch'", allowed, e.node.IsNull() ? list_hint(entries) : "");
  }
  const auto entry = [&](const char* key) { return find_entry(entries, key); };
  const Field* both = entry("lengths");
  const Field* q = entry("q");
  const Field* s = entry("s");
  const Field* context = entry("context");
  const bool one_form =
      both != nullptr ? !q && !s && !context : q != nullptr && (s != nullptr) != (context != nullptr);
  if (!one_form) field.fail("expected either 'lengths', or 'q' and 's', or 'q' and 'context'");

  const uint64_t seed = entry("seed") ? read_unsigned(*entry("seed")) : file_seed;
  const Lengths first = read_lengths(both ? *both : *q);
  const Lengths second = both ? Lengths{} : read_lengths(s ? *s : *context);
  const std::size_t count = read_count(field, entry("count"), {both, q, s, context});

  std::vector<SeqLen> seqs(count);
  int64_t total_q = 0;
  int64_t total_k = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int64_t len_q = first.at(i, seed, both ? LengthOf::kBoth : LengthOf::kQuery);
    int64_t len_k = len_q;
    if (s != nullptr) len_k = second.at(i, seed, LengthOf::kKey);
    if (context != nullptr) len_k = len_q + second.at(i, seed, LengthOf::kContext);
    if (len_k > kMaxSeqLen) {
      field.fail(fmt::format("sequence {} has {} keys, at most {} are allowed", i, len_k, kMaxSeqLen));
    }
    seqs[i] = {static_cast<int32_t>(len_q), static_cast<int32_t>(len_k)};
    total_q += len_q;
    total_k += len_k;
  }
  if (std::max(total_q, total_k) > kMaxTotalTokens) {
    field.fail(fmt::format("asks for {} query and {} key tokens in all, at most {} are allowed", total_q,
                           total_k, kMaxTotalTokens));
  }
  return seqs;
}

Json object_schema(Json required, Json properties) {
  return {{"type", "object"},
          {"required", std::move(required)},
          {"additionalProperties", false},
          {"properties", std::move(properties)}};
}

}  // namespace

std::vector<std::vector<SeqLen>> read_batches(const Field& field, uint64_t file_seed) {
  if (field.node.IsMap()) return {read_mapping(field, file_seed)};
  if (!field.node.IsScalar()) {
    field.fail_expected("a batch spec such as 8q1s1k, or a mapping such as {lengths: 512, count: 4}");
  }
  try {
    return parse_batch_product(field.node.Scalar());
  } catch (const BatchSpecError& e) {
    Field character = field;  // points into the spec; a quoted one starts one column later
    character.mark.column += static_cast<int>(e.offset) + (field.node.Tag() == "?" ? 0 : 1);
    character.fail(e.what());
  }
}

nlohmann::ordered_json length_schema(const nlohmann::ordered_json& number) {
  const Json suffixed = {{"type", "string"}, {"pattern", fmt::format("^{}$", kSuffixedLength)}};
  return {{"anyOf", Json::array({number, suffixed})}};
}

nlohmann::ordered_json lengths_schema() {
  const Json length = length_schema({{"type", "integer"}, {"minimum", 0}, {"maximum", kMaxSeqLen}});
  const Json list = {{"type", "array"}, {"items", length}, {"minItems", 1}, {"maxItems", kMaxBatch}};
  const Json range = {{"type", "array"}, {"items", length}, {"minItems", 2}, {"maxItems", 2}};
  const Json median = length_schema({{"type", "number"}, {"minimum", 1}, {"maximum", kMaxSeqLen}});
  const Json sigma = {{"type", "number"}, {"minimum", 0}, {"maximum", kMaxSigma}};
  const Json lognormal =
      object_schema(Json::array({"median", "sigma"}), {{"median", median}, {"sigma", sigma}});
  const Json options = Json::array(
      {length, list, object_schema(Json::array({"constant"}), {{"constant", length}, {"clip", range}}),
       object_schema(Json::array({"uniform"}), {{"uniform", range}, {"clip", range}}),
       object_schema(Json::array({"lognormal"}), {{"lognormal", lognormal}, {"clip", range}})});
  return {{"description", "Lengths in tokens: one for all sequences, a list, or a distribution."},
          {"anyOf", options}};
}

nlohmann::ordered_json batch_schema() {
  const Json lengths = {{"$ref", "#/$defs/lengths"}};
  const Json count = {{"type", "integer"}, {"minimum", 0}, {"maximum", kMaxBatch}};
  const Json seed = {{"type", "integer"}, {"minimum", 0}, {"maximum", UINT64_MAX}};
  // A number as it stands, or several in braces, of which each becomes a batch.
  const std::string seqs = "([0-9]*|\\{[0-9]+(,[0-9]+)*\\})";
  const std::string tokens = "([0-9]+[km]?|\\{[0-9]+[km]?(,[0-9]+[km]?)*\\}|\\{[0-9]+(,[0-9]+)*\\}[km])";
  const std::string segment = fmt::format("{0}q{1}(s{1})?", seqs, tokens);
  const Json spec = {{"type", "string"}, {"pattern", fmt::format("^{0}(_{0})*$", segment)}};
  const Json both = {{"lengths", lengths}, {"count", count}, {"seed", seed}};
  const Json q_s = {{"q", lengths}, {"s", lengths}, {"count", count}, {"seed", seed}};
  const Json q_context = {{"q", lengths}, {"context", lengths}, {"count", count}, {"seed", seed}};
  const Json options =
      Json::array({spec, object_schema(Json::array({"serving"}), {{"serving", serving_schema()}}),
                   object_schema(Json::array({"lengths"}), both), object_schema(Json::array({"q", "s"}), q_s),
                   object_schema(Json::array({"q", "context"}), q_context)});
  return {{"anyOf", options}};
}

}  // namespace attnbench
