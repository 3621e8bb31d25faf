#include "harness/config/batch_value.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/config/batch_product.h"
#include "harness/config/length_value.h"
#include "harness/config/serving_value.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

/// The number of sequences: `count`, or the size of the explicit lists, which must all agree.
std::size_t read_count(const Field& mapping, const Field* count, const std::vector<const Field*>& lengths) {
  std::optional<int64_t> n;
  if (count != nullptr && count->node.IsSequence())
    count->fail(
        "got a list, expected one number; for several, write several batches, as in batch: [{lengths: 512, count: 1}, "
        "{lengths: 512, count: 4}], or a spec such as '{1,4}q1s{1k,4k}'");
  if (count != nullptr) n = read_integer(*count, 0, kMaxBatch);
  for (const Field* l : lengths) {
    if (l == nullptr || !l->node.IsSequence()) continue;
    const auto size = static_cast<int64_t>(l->node.size());
    if (size > kMaxBatch) l->fail(fmt::format("lists {} sequences, at most {} are allowed", size, kMaxBatch));
    if (n && *n != size) l->fail(fmt::format("lists {} sequences, but there are to be {}", size, *n));
    n = size;
  }
  if (!n)
    mapping.fail(
        "'count' is missing, expected the number of sequences, e.g. {lengths: 512, count: 4}, or 'total', that of keys");
  return static_cast<std::size_t>(*n);
}

/// With 'total' there is no count: as many sequences as a batch may have.
std::size_t count_of_total(const Field& total, const std::vector<const Field*>& lengths) {
  for (const Field* l : lengths) {
    if (l != nullptr && l->node.IsSequence())
      total.fail(fmt::format(
          "stands beside a list, which has all of '{}'; expected a length or a distribution", l->key));
  }
  return static_cast<std::size_t>(kMaxBatch);
}

void put_in_order(const Field& field, uint64_t seed, std::vector<SeqLen>& seqs) {
  const std::string order = field.node.IsScalar() ? field.node.Scalar() : "";
  const auto shorter = [](const SeqLen& a, const SeqLen& b) {
    return std::pair(a.k, a.q) < std::pair(b.k, b.q);
  };
  if (order == "ascending") {
    std::ranges::stable_sort(seqs, shorter);
  } else if (order == "descending") {
    std::ranges::stable_sort(seqs, [&](const SeqLen& a, const SeqLen& b) { return shorter(b, a); });
  } else if (order == "shuffled") {
    LengthDistribution place;
    place.shape = LengthDistribution::Shape::kUniform;
    for (std::size_t i = seqs.size(); i-- > 1;) {
      place.hi = place.clip_hi = static_cast<int64_t>(i);
      const int64_t other = draw_length(place, seed, static_cast<uint32_t>(i), LengthOf::kOrder);
      std::swap(seqs[i], seqs[static_cast<std::size_t>(other)]);
    }
  } else if (order != "as_drawn") {
    field.fail_expected("as_drawn, ascending, descending or shuffled");
  }
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
    const std::vector<std::string> allowed = {"lengths", "q",     "s",     "context",
                                              "count",   "total", "order", "seed"};
    if (std::ranges::find(allowed, e.key) == allowed.end())
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
  const Field* total = entry("total");
  if (total != nullptr && entry("count") != nullptr)
    total->fail("stands beside 'count', expected one of them");
  const int64_t tokens = total ? read_length(*total, 1, kMaxTotalTokens) : kMaxTotalTokens + 1;
  const std::size_t count = total ? count_of_total(*total, {both, q, s, context})
                                  : read_count(field, entry("count"), {both, q, s, context});

  std::vector<SeqLen> seqs;
  int64_t total_q = 0;
  int64_t total_k = 0;
  for (std::size_t i = 0; i < count && total_k < tokens; ++i) {
    int64_t len_q = first.at(i, seed, both ? LengthOf::kBoth : LengthOf::kQuery);
    int64_t len_k = len_q;
    if (s != nullptr) len_k = second.at(i, seed, LengthOf::kKey);
    if (context != nullptr) len_k = len_q + second.at(i, seed, LengthOf::kContext);
    if (len_k > kMaxSeqLen) {
      field.fail(fmt::format("sequence {} has {} keys, at most {} are allowed", i, len_k, kMaxSeqLen));
    }
    if (total != nullptr) {  // the last one is cut
      len_k = std::min(len_k, tokens - total_k);
      len_q = std::min(len_q, len_k);
    }
    seqs.push_back({static_cast<int32_t>(len_q), static_cast<int32_t>(len_k)});
    total_q += len_q;
    total_k += len_k;
  }
  if (total != nullptr && total_k < tokens) {
    total->fail(
        fmt::format("{} sequences have {} keys; give a smaller total or longer sequences", count, total_k));
  }
  if (std::max(total_q, total_k) > kMaxTotalTokens) {
    field.fail(fmt::format("asks for {} query and {} key tokens in all, at most {} are allowed", total_q,
                           total_k, kMaxTotalTokens));
  }
  if (const Field* order = entry("order")) put_in_order(*order, seed, seqs);
  return seqs;
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

nlohmann::ordered_json batch_schema() {
  const Json lengths = {{"$ref", "#/$defs/lengths"}};
  const Json count = {{"type", "integer"}, {"minimum", 0}, {"maximum", kMaxBatch}};
  const Json seed = {{"type", "integer"}, {"minimum", 0}, {"maximum", UINT64_MAX}};
  // A number as it stands, or several in braces, of which each becomes a batch.
  const auto group = [](const std::string& number) {  // numbers and ranges
    const std::string item = fmt::format("{0}(\\.\\.{0}(\\.\\.x?{0})?)?", number);
    return fmt::format("\\{{{0}(,{0})*\\}}", item);
  };
  const std::string whole = "[0-9]+", length = "[0-9]+[km]?";
  const std::string seqs = fmt::format("([0-9]*|{})", group(whole));
  const std::string tokens = fmt::format("({}|{}|{}[km])", length, group(length), group(whole));
  const std::string segment = fmt::format("{0}q{1}(s{1})?", seqs, tokens);
  const Json spec = {{"type", "string"}, {"pattern", fmt::format("^{0}(_{0})*$", segment)}};
  const Json total = length_schema({{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxTotalTokens}});
  const Json order = {{"enum", Json::array({"as_drawn", "ascending", "descending", "shuffled"})}};
  const Json both = {
      {"lengths", lengths}, {"count", count}, {"total", total}, {"order", order}, {"seed", seed}};
  const Json q_s = {{"q", lengths},   {"s", lengths},   {"count", count},
                    {"total", total}, {"order", order}, {"seed", seed}};
  const Json q_context = {{"q", lengths},   {"context", lengths}, {"count", count},
                          {"total", total}, {"order", order},     {"seed", seed}};
  const Json options =
      Json::array({spec, object_schema(Json::array({"serving"}), {{"serving", serving_schema()}}),
                   object_schema(Json::array({"lengths"}), both), object_schema(Json::array({"q", "s"}), q_s),
                   object_schema(Json::array({"q", "context"}), q_context)});
  return {{"anyOf", options}};
}

}  // namespace attnbench
