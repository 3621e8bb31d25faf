#include "harness/config/length_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "harness/config/batch_spec.h"
#include "harness/config/batch_value.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
using Shape = LengthDistribution::Shape;

constexpr int64_t kWideClip = int64_t{1} << 20;  // default clip of shapes that have no end: 1..2^20 tokens
constexpr double kMaxSigma = 16.0;
constexpr double kLeastExponent = 0.1, kMaxExponent = 16.0;
constexpr const char* kShapes[] = {"constant", "uniform", "lognormal", "normal",
                                   "zipf",     "bimodal", "longtail",  "quantiles"};

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

/// A number of tokens of at least `least` that need not be whole.
double read_tokens(const Field& field, int64_t least) {
  const bool suffixed = is_length(field) && !read_number(field);
  return suffixed ? static_cast<double>(read_length(field, least, kMaxSeqLen))
                  : read_within(field, static_cast<double>(least), static_cast<double>(kMaxSeqLen));
}

double read_median(const Field& field) { return read_tokens(field, 1); }

const Field& require(const std::vector<Field>& entries, const char* key, const Field& mapping,
                     const char* example) {
  const Field* entry = find_entry(entries, key);
  if (entry == nullptr) mapping.fail(fmt::format("'{}' is missing, expected e.g. {}", key, example));
  return *entry;
}

/// The parts of a distribution: all of `keys`, and no others.
std::vector<Field> read_parts(const Field& shape, const std::vector<std::string>& keys, const char* example) {
  const std::string where = fmt::format("'{}'", shape.key);
  std::vector<Field> parts = entries_of(shape, where);
  for (const Field& e : parts) {
    if (std::ranges::find(keys, e.key) == keys.end()) fail_unknown_key(e, where, keys);
  }
  for (const std::string& key : keys) require(parts, key.c_str(), shape, example);
  return parts;
}

/// [[0, 16], [0.5, 800], [1, 8192]]
std::vector<Quantile> read_quantiles(const Field& field) {
  constexpr const char* expected =
      "pairs of a probability and a length, e.g. [[0, 16], [0.5, 800], [1, 8192]]";
  if (!field.node.IsSequence() || field.node.size() < 2) field.fail_expected(expected);
  std::vector<Quantile> table;
  for (const Field& pair : items_of(field)) {
    if (!pair.node.IsSequence() || pair.node.size() != 2) pair.fail_expected(expected);
    const std::vector<Field> parts = items_of(pair);
    const Quantile q{read_within(parts[0], 0.0, 1.0), read_length(parts[1], 1, kMaxSeqLen)};
    if (!table.empty() && (q.probability <= table.back().probability || q.tokens < table.back().tokens)) {
      pair.fail(fmt::format(
          "[{}, {}] stands behind [{}, {}], expected a higher probability and a length that is not "
          "less",
          q.probability, q.tokens, table.back().probability, table.back().tokens));
    }
    table.push_back(q);
  }
  if (table.front().probability != 0 || table.back().probability != 1)
    field.fail("the probabilities must begin with 0 and end with 1: give the least and the greatest length");
  return table;
}

/// The clip is known.
void read_shape(const Field& shape, LengthDistribution& d) {
  if (shape.key == "constant") {
    d.lo = read_length(shape, 0, kMaxSeqLen);
  } else if (shape.key == "uniform") {
    d.shape = Shape::kUniform;
    std::tie(d.lo, d.hi) = read_range(shape);
  } else if (shape.key == "lognormal") {
    d.shape = Shape::kLognormal;
    const auto parts = read_parts(shape, {"median", "sigma"}, "{median: 800, sigma: 1.0}");
    d.median = read_median(*find_entry(parts, "median"));
    d.sigma = read_within(*find_entry(parts, "sigma"), 0.0, kMaxSigma);
  } else if (shape.key == "normal") {
    d.shape = Shape::kNormal;
    const auto parts = read_parts(shape, {"mean", "stddev"}, "{mean: 800, stddev: 200}");
    d.median = read_median(*find_entry(parts, "mean"));
    d.sigma = read_tokens(*find_entry(parts, "stddev"), 0);
  } else if (shape.key == "zipf") {
    d.shape = Shape::kZipf;
    const auto parts = read_parts(shape, {"exponent", "max"}, "{exponent: 1.1, max: 8192}");
    d.exponent = read_within(*find_entry(parts, "exponent"), kLeastExponent, kMaxExponent);
    d.hi = read_length(*find_entry(parts, "max"), 1, kMaxSeqLen);
  } else if (shape.key == "bimodal") {
    d.shape = Shape::kBimodal;
    const auto parts =
        read_parts(shape, {"medians", "sigma", "second"}, "{medians: [200, 8k], sigma: 0.3, second: 0.1}");
    const Field& medians = *find_entry(parts, "medians");
    if (!medians.node.IsSequence() || medians.node.size() != 2)
      medians.fail_expected("two lengths, e.g. [200, 8k]");
    const std::vector<Field> both = items_of(medians);
    d.median = read_median(both[0]);
    d.median2 = read_median(both[1]);
    d.sigma = read_within(*find_entry(parts, "sigma"), 0.0, kMaxSigma);
    d.share = read_within(*find_entry(parts, "second"), 0.0, 1.0);
  } else if (shape.key == "longtail") {
    d.shape = Shape::kLongtail;
    const auto parts = read_parts(shape, {"median", "exponent"}, "{median: 800, exponent: 1.2}");
    d.median = read_median(*find_entry(parts, "median"));
    d.exponent = read_within(*find_entry(parts, "exponent"), kLeastExponent, kMaxExponent);
  } else {
    d.shape = Shape::kQuantiles;
    d.quantiles = read_quantiles(shape);
  }
}

LengthDistribution read_distribution(const Field& field) {
  const std::string where = fmt::format("the distribution of '{}'", field.key);
  const std::vector<Field> entries = entries_of(field, where);
  const Field* shape = nullptr;
  const Field* clip = nullptr;
  const Field* zeros = nullptr;
  for (const Field& e : entries) {
    if (e.key == "clip") {
      clip = &e;
    } else if (e.key == "zeros") {
      zeros = &e;
    } else if (std::find(std::begin(kShapes), std::end(kShapes), e.key) == std::end(kShapes)) {
      std::vector<std::string> allowed(std::begin(kShapes), std::end(kShapes));
      allowed.insert(allowed.end(), {"clip", "zeros"});
      fail_unknown_key(e, where, allowed);
    } else if (shape != nullptr) {
      e.fail(fmt::format("stands beside '{}', expected one distribution", shape->key));
    } else {
      shape = &e;
    }
  }
  if (shape == nullptr)
    field.fail(fmt::format("names no distribution; allowed: {}", fmt::join(kShapes, ", ")));

  LengthDistribution d;
  if (shape->key == "constant" || shape->key == "uniform") {
    d.clip_hi = kMaxSeqLen;
  } else {
    d.clip_lo = 1;
    d.clip_hi = kWideClip;
  }
  if (clip != nullptr) std::tie(d.clip_lo, d.clip_hi) = read_range(*clip);
  if (zeros != nullptr) d.zeros = read_within(*zeros, 0.0, 1.0);
  read_shape(*shape, d);
  if (d.shape == Shape::kQuantiles && clip == nullptr) d.clip_hi = kMaxSeqLen;
  return d;
}

}  // namespace

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

nlohmann::ordered_json object_schema(nlohmann::ordered_json required, nlohmann::ordered_json properties) {
  return {{"type", "object"},
          {"required", std::move(required)},
          {"additionalProperties", false},
          {"properties", std::move(properties)}};
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
  const Json exponent = {{"type", "number"}, {"minimum", kLeastExponent}, {"maximum", kMaxExponent}};
  const Json part = {{"type", "number"}, {"minimum", 0}, {"maximum", 1}};
  const Json stddev = length_schema({{"type", "number"}, {"minimum", 0}, {"maximum", kMaxSeqLen}});
  const Json positive = length_schema({{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxSeqLen}});
  const Json medians = {{"type", "array"}, {"items", median}, {"minItems", 2}, {"maxItems", 2}};
  const Json pair = {
      {"type", "array"}, {"prefixItems", Json::array({part, positive})}, {"minItems", 2}, {"maxItems", 2}};
  const Json quantiles = {{"type", "array"}, {"items", pair}, {"minItems", 2}};
  const auto shape = [&](const char* name, const Json& value) {
    return object_schema(Json::array({name}), {{name, value}, {"clip", range}, {"zeros", part}});
  };
  const auto parts = [&](const Json& properties) {
    Json keys = Json::array();
    for (const auto& [key, value] : properties.items()) keys.push_back(key);
    return object_schema(keys, properties);
  };
  const Json options = Json::array(
      {length, list, shape("constant", length), shape("uniform", range), shape("lognormal", lognormal),
       shape("normal", parts({{"mean", median}, {"stddev", stddev}})),
       shape("zipf", parts({{"exponent", exponent}, {"max", positive}})),
       shape("bimodal", parts({{"medians", medians}, {"sigma", sigma}, {"second", part}})),
       shape("longtail", parts({{"median", median}, {"exponent", exponent}})),
       shape("quantiles", quantiles)});
  return {{"description", "Lengths in tokens: one for all sequences, a list, or a distribution."},
          {"anyOf", options}};
}

}  // namespace attnbench
