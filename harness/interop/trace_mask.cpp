// The mask of a definition, by its words and its code.
#include <re2/re2.h>

#include <optional>
#include <string>

#include "harness/interop/trace_definition.h"

namespace attnbench::trace {
namespace {

// Words on an option, which say nothing of what is computed.
const char* const kOption =
    R"((?i)\bget\(\s*["']causal["'][^)]*\)|\b(?:if|elif|when|whether|optional(?:ly)?)\s+(?:an?\s+|the\s+|not\s+)?)"
    R"((?:is_)?causal\w*|\bcausal\s+(?:or|and)\s+non-?causal\b)";
const char* const kNoMask =
    R"((?i)\b(?:non|not|no|without)[\s_-]*(?:an?\s+|any\s+|the\s+)?causal\w*)"
    R"(|causal["']?\s*(?:[:=]|is\b)\s*(?:false|0|off|none|no)\b|causal(?:\s+mask(?:ing)?)?\s+(?:is|are)\s+not\b)"
    R"(|\b(?:acausal|bidirectional|unmasked)\b|\b(?:no|without)\s+(?:an?\s+|any\s+)?(?:attention\s+)?mask(?:s|ing)?\b)";
// scaled_dot_product_attention counts keys from the top left (PyTorch, since 2.1).
const char* const kTopLeft = R"((?i)\b(?:top|upper)[ -]left\b|\bis_causal\s*=\s*true\b)";
const char* const kCausal = R"((?i)causal)";
// The last key of a query by its index: `min(q_idx + 1 + delta, num_kv_tokens)`, `prefix + q_idx + 1`.
const char* const kCausalBound =
    R"(\bq\w*\s*\+\s*1\s*\+\s*[\w(]|[\w)]\s*\+\s*q\w*\s*\+\s*1\b|\btri[lu]\(.*diagonal)";
const char* const kOtherMask = R"((?i)\b(?:sliding[ -]window|custom[ -]mask|tree[ -]mask)\b)";
const char* const kNoOtherMask =
    R"((?i)\b(?:no|without)\s+(?:an?\s+)?(?:sliding[ -]window|custom[ -]mask|tree[ -]mask)\b)";

/// Empty: the text does not say it. Throws Skipped if it says two things.
std::optional<TraceMask> mask_in(std::string text, bool is_code) {
  RE2::GlobalReplace(&text, kOption, " ");
  const bool none = RE2::GlobalReplace(&text, kNoMask, " ") > 0;
  const bool top_left = RE2::PartialMatch(text, kTopLeft);
  const bool causal = RE2::PartialMatch(text, kCausal) || (is_code && RE2::PartialMatch(text, kCausalBound));
  if (none && (causal || top_left)) {
    throw Skipped(
        "the definition says both that its mask is causal and that it is not; leave one out of its description "
        "or reference");
  }
  if (top_left) return TraceMask::kTopLeft;
  if (causal) return TraceMask::kCausal;
  if (none) return TraceMask::kNone;
  return std::nullopt;
}

std::string text_of(const Value& definition, const char* key) {
  return definition.has(key) ? definition.at(key).text() : std::string();
}

}  // namespace

TraceMask mask_of(const Value& definition) {
  std::string words = text_of(definition, "description");
  if (definition.has("tags")) {
    for (const std::string& tag : definition.at("tags").texts()) words += "\n" + tag;
  }
  std::string others = words;
  RE2::GlobalReplace(&others, kNoOtherMask, " ");
  if (RE2::PartialMatch(others, kOtherMask))
    throw Skipped("the description names a mask that is not read (sliding window, custom or tree mask)");
  if (!definition.at("inputs").has("qo_indptr")) return TraceMask::kNone;  // one query, which sees all keys
  const std::optional<TraceMask> said = mask_in(words, false);
  const std::optional<TraceMask> done = mask_in(text_of(definition, "reference"), true);
  if (!said && !done) {
    throw Skipped(
        "the mask is unknown: neither description nor reference of the definition says it; write 'causal' or 'no mask' "
        "into its description");
  }
  if (said && done && (*said == TraceMask::kNone) != (*done == TraceMask::kNone)) {
    throw Skipped(
        "description and reference of the definition contradict each other on the causal mask; mend one");
  }
  return done == TraceMask::kTopLeft || !said ? *done : *said;
}

}  // namespace attnbench::trace
