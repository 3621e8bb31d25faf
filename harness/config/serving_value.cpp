#include "harness/config/serving_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <variant>

#include "harness/config/mixes.h"
#include "harness/digest.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
using Spec = ServingSpec;

/// Numbers from lo to hi; `tokens`: may end in k or m.
struct Whole {
  int64_t Spec::*member;
  int64_t lo, hi;
  bool tokens = false;
};
struct Real {
  double Spec::*member;
  double lo, hi;
};
struct Flag {
  bool Spec::*member;
};
struct Word {
  std::string Spec::*member;
  std::vector<std::string> words;
};

/// A key of the mapping. `mix`, `step` and `seed` have forms of their own.
struct ServingKey {
  const char* name;
  std::variant<Whole, Real, Flag, Word> kind;
  const char* doc;
};

constexpr int64_t kMostSteps = 1'000'000;
constexpr int64_t kMostTokens = int64_t{1} << 30;

const std::vector<ServingKey>& serving_keys() {
  static const std::vector<ServingKey> keys = {
      {"steps", Whole{&Spec::steps, 1, kMostSteps}, "length of the replay"},
      {"warmup", Whole{&Spec::warmup, 0, kMostSteps}, "steps before the replay, while the cache fills"},
      {"rate", Real{&Spec::rate, 0, 1e9},
       "requests per second, arriving at random; 0: all wait from the start, so the server is always full"},
      {"step_ms", Real{&Spec::step_ms, 0, 1e6}, "time of a step without its tokens, for `rate`"},
      {"token_us", Real{&Spec::token_us, 0, 1e6}, "time that each query token adds to its step, for `rate`"},
      {"max_sequences", Whole{&Spec::max_sequences, 1, 1 << 20}, "most sequences that hold blocks at a time"},
      {"token_budget", Whole{&Spec::token_budget, 1, kMostTokens, true}, "most query tokens of a step"},
      {"chunked_prefill", Flag{&Spec::chunked_prefill},
       "a prompt may be computed in several steps; `false`: in one, if it fits the budget"},
      {"cache_tokens", Whole{&Spec::cache_tokens, 1, kMostTokens, true},
       "size of the KV cache, rounded down to whole blocks"},
      {"free_order", Word{&Spec::free_order, {"lifo", "fifo", "lowest"}},
       "which free block is taken next: the last freed, the first freed, or the lowest"},
      {"prefix_sharing", Flag{&Spec::prefix_sharing},
       "prompts share blocks of equal prefixes; `false`: they do not"},
      {"preemption", Word{&Spec::preemption, {"recompute", "swap"}},
       "what happens to the tokens of a sequence that loses its blocks"},
      {"draft_tokens", Whole{&Spec::draft_tokens, 0, 64},
       "speculative decoding: draft tokens of each decode"},
      {"acceptance", Real{&Spec::acceptance, 0, 1},
       "probability that a draft is accepted if those before it are"},
  };
  return keys;
}

const ServingKey& serving_key(std::string_view name) {
  for (const ServingKey& key : serving_keys()) {
    if (key.name == name) return key;
  }
  throw std::logic_error(fmt::format("no key '{}' of a server", name));
}

struct StepWord {
  const char* word;
  StepChoice::Kind kind;
};
constexpr StepWord kStepWords[] = {{"first", StepChoice::Kind::kFirst},
                                   {"p50", StepChoice::Kind::kP50},
                                   {"p99", StepChoice::Kind::kP99},
                                   {"all", StepChoice::Kind::kAll}};
constexpr const char* kStepForms = "first, p50, p99, all, the number of a step, or {spread: COUNT}";

StepChoice read_step(const Field& field) {
  if (field.node.IsMap()) {
    const std::vector<Field> entries = entries_of(field, "'step'");
    for (const Field& e : entries) {
      if (e.key != "spread") fail_unknown_key(e, "'step'", {"spread"});
    }
    const Field* spread = find_entry(entries, "spread");
    if (spread == nullptr) field.fail("the mapping is empty, expected {spread: COUNT}");
    const int64_t count = read_integer(*spread, 2, kMostSteps);
    if (count % 2 != 0) spread->fail("two steps are drawn of each stratum, so an even number is required");
    return {StepChoice::Kind::kSpread, count};
  }
  if (is_plain_integer(field)) return {StepChoice::Kind::kIndex, read_integer(field, 0, kMostSteps - 1)};
  if (!field.node.IsScalar()) field.fail_expected(kStepForms);
  std::vector<std::string> words;
  for (const StepWord& w : kStepWords) {
    if (field.node.Scalar() == w.word) return {w.kind, 0};
    words.emplace_back(w.word);
  }
  words.emplace_back("{spread: COUNT}");
  field.fail(fmt::format("unknown word '{}'{}", field.node.Scalar().substr(0, 60),
                         suggest(field.node.Scalar(), words)));
}

std::string step_text(const StepChoice& step) {
  if (step.kind == StepChoice::Kind::kSpread) return fmt::format("{{spread: {}}}", step.number);
  for (const StepWord& w : kStepWords) {
    if (w.kind == step.kind) return w.word;
  }
  return fmt::format("{}", step.number);
}

void read_value(const Field& field, const ServingKey& key, Spec& spec) {
  std::visit(
      [&](const auto& k) {
        using Kind = std::decay_t<decltype(k)>;
        if constexpr (std::is_same_v<Kind, Whole>) {
          spec.*k.member = k.tokens ? read_length(field, k.lo, k.hi) : read_integer(field, k.lo, k.hi);
        } else if constexpr (std::is_same_v<Kind, Real>) {
          const std::optional<double> value = read_number(field);
          if (!value || !(*value >= k.lo && *value <= k.hi))
            field.fail_expected(fmt::format("a number from {} to {}", k.lo, k.hi));
          spec.*k.member = *value;
        } else if constexpr (std::is_same_v<Kind, Flag>) {
          spec.*k.member = read_bool(field);
        } else {
          const std::string word = read_string(field);
          if (std::find(k.words.begin(), k.words.end(), word) == k.words.end())
            field.fail(fmt::format("unknown word '{}'{}", word, suggest(word, k.words)));
          spec.*k.member = word;
        }
      },
      key.kind);
}

std::string value_text(const ServingKey& key, const Spec& spec) {
  return std::visit([&](const auto& k) { return fmt::format("{}", spec.*k.member); }, key.kind);
}

Json value_schema(const ServingKey& key) {
  return std::visit(
      [](const auto& k) -> Json {
        using Kind = std::decay_t<decltype(k)>;
        if constexpr (std::is_same_v<Kind, Whole>) {
          Json number = {{"type", "integer"}, {"minimum", k.lo}, {"maximum", k.hi}};
          if (!k.tokens) return number;
          return {{"anyOf", Json::array({number, Json{{"type", "string"},
                                                      {"pattern", fmt::format("^{}$", kSuffixedLength)}}})}};
        } else if constexpr (std::is_same_v<Kind, Real>) {
          return {{"type", "number"}, {"minimum", k.lo}, {"maximum", k.hi}};
        } else if constexpr (std::is_same_v<Kind, Flag>) {
          return {{"type", "boolean"}};
        } else {
          return {{"enum", k.words}};
        }
      },
      key.kind);
}

std::string values_text(const ServingKey& key) {
  return std::visit(
      [](const auto& k) -> std::string {
        using Kind = std::decay_t<decltype(k)>;
        if constexpr (std::is_same_v<Kind, Flag>) {
          return "`true`, `false`";
        } else if constexpr (std::is_same_v<Kind, Word>) {
          std::string text;
          for (const std::string& word : k.words)
            text += fmt::format("{}`{}`", text.empty() ? "" : ", ", word);
          return text;
        } else {
          return fmt::format("{} to {}", k.lo, k.hi);
        }
      },
      key.kind);
}

}  // namespace

int64_t ServingSpec::cases() const {
  if (step.kind == StepChoice::Kind::kSpread) return step.number;
  return step.kind == StepChoice::Kind::kAll ? steps : 1;
}

std::string ServedStep::sample_label() const {
  Digest digest;
  digest.add_text(replay);
  return fmt::format("{}-{:04x}{}", mix, digest.value32() & 0xffff,
                     stratum < 0 ? "" : fmt::format("x{}", drawn));
}

std::string ServedStep::label() const { return fmt::format("{}-step{}", sample_label(), step); }

ServingSpec read_serving(const Field& field, uint64_t file_seed) {
  ServingSpec spec;
  spec.seed = file_seed;
  std::vector<std::string> allowed = {"mix", "step", "seed"};
  for (const ServingKey& key : serving_keys()) allowed.emplace_back(key.name);
  const std::vector<Field> entries = entries_of(field, "'serving'");
  for (const Field& e : entries) {
    const auto key = std::find_if(serving_keys().begin(), serving_keys().end(),
                                  [&](const ServingKey& k) { return e.key == k.name; });
    if (key != serving_keys().end()) {
      read_value(e, *key, spec);
    } else if (e.key == "mix") {
      spec.mix = read_string(e);
      if (find_mix(spec.mix) == nullptr)
        e.fail(fmt::format("unknown mix '{}'{}", spec.mix, suggest(spec.mix, mix_names())));
    } else if (e.key == "step") {
      spec.step = read_step(e);
    } else if (e.key == "seed") {
      spec.seed = read_unsigned(e);
    } else {
      fail_unknown_key(e, "'serving'", allowed);
    }
  }
  if (spec.mix.empty()) field.fail("'mix' is missing, expected e.g. {mix: azure_conv_2023}");
  if (spec.cases() > spec.steps) {
    field.fail(fmt::format("draws {} of the replay's {} steps; raise steps or lower spread", spec.cases(),
                           spec.steps));
  }
  if (spec.step.kind == StepChoice::Kind::kIndex && spec.step.number >= spec.steps) {
    field.fail(fmt::format("chooses step {}, and the replay has the steps 0 to {}", spec.step.number,
                           spec.steps - 1));
  }
  return spec;
}

ServingRange serving_range(std::string_view key) {
  const auto& kind = serving_key(key).kind;
  if (const auto* whole = std::get_if<Whole>(&kind))
    return {static_cast<double>(whole->lo), static_cast<double>(whole->hi)};
  if (const auto* real = std::get_if<Real>(&kind)) return {real->lo, real->hi};
  throw std::logic_error(fmt::format("the key '{}' of a server has no range", key));
}

const std::vector<std::string>& serving_words(std::string_view key) {
  const auto* word = std::get_if<Word>(&serving_key(key).kind);
  if (word == nullptr) throw std::logic_error(fmt::format("the key '{}' of a server has no words", key));
  return word->words;
}

std::string serving_text(const ServingSpec& spec, bool with_step) {
  static const ServingSpec defaults;
  std::string text = fmt::format("{{mix: {}", spec.mix);
  if (with_step) text += fmt::format(", step: {}", step_text(spec.step));
  for (const ServingKey& key : serving_keys()) {
    const std::string value = value_text(key, spec);
    if (value != value_text(key, defaults)) text += fmt::format(", {}: {}", key.name, value);
  }
  return text + fmt::format(", seed: {}}}", spec.seed);
}

std::string serving_batch_text(const ServedStep& step) {
  return fmt::format("{{serving: {}, step: {}}}}}", step.replay.substr(0, step.replay.size() - 1), step.step);
}

nlohmann::ordered_json serving_schema() {
  Json properties;
  properties["mix"] = {{"enum", mix_names()}};
  Json spread = {
      {"type", "object"},
      {"required", Json::array({"spread"})},
      {"additionalProperties", false},
      {"properties", {{"spread", {{"type", "integer"}, {"minimum", 2}, {"maximum", kMostSteps}}}}}};
  std::vector<std::string> words;
  for (const StepWord& w : kStepWords) words.emplace_back(w.word);
  properties["step"] = {
      {"anyOf",
       Json::array({Json{{"enum", words}},
                    Json{{"type", "integer"}, {"minimum", 0}, {"maximum", kMostSteps - 1}}, spread})}};
  properties["seed"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", UINT64_MAX}};
  for (const ServingKey& key : serving_keys()) {
    properties[key.name] = {{"description", key.doc}};
    properties[key.name].update(value_schema(key));
  }
  return {{"type", "object"},
          {"required", Json::array({"mix"})},
          {"additionalProperties", false},
          {"properties", properties}};
}

std::string serving_markdown() {
  static const ServingSpec defaults;
  std::string text = "| key | values | default | meaning |\n|---|---|---|---|\n";
  for (const ServingKey& key : serving_keys()) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.name, values_text(key), value_text(key, defaults),
                        key.doc);
  }
  return text;
}

}  // namespace attnbench
