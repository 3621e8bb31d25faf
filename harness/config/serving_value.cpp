#include "harness/config/serving_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <variant>

#include "harness/config/length_value.h"
#include "harness/config/mixes.h"
#include "harness/config/trace_columns.h"
#include "harness/config/trace_path.h"

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
/// Names of columns (trace_columns.h).
struct Columns {
  std::string Spec::*member;
};

/// The key that names the requests.
enum class RequestsBy { kMix, kTrace };

/// Requests that a key is not for, and what its error says.
struct Refusal {
  RequestsBy requests;
  const char* error;
};

/// A key of the mapping. `mix`, `trace`, `step` and `seed` have forms of their own.
struct ServingKey {
  const char* name;
  std::variant<Whole, Real, Flag, Word, Columns> kind;
  const char* doc;
  std::optional<Refusal> refusal = std::nullopt;

  bool is_for(RequestsBy requests) const { return !refusal || refusal->requests != requests; }
};

constexpr int64_t kMostSteps = 1'000'000;
constexpr int64_t kMostTokens = int64_t{1} << 30;

const std::vector<ServingKey>& serving_keys() {
  static const std::vector<ServingKey> keys = {
      {"steps", Whole{&Spec::steps, 1, kMostSteps}, "length of the replay"},
      {"warmup", Whole{&Spec::warmup, 0, kMostSteps}, "steps before the replay, while the cache fills"},
      {"rate", Real{&Spec::rate, 0, 1e9},
       "`mix`: requests per second, arriving at random; 0: all wait from the start, so the server is always full",
       Refusal{RequestsBy::kTrace,
               "stands beside 'trace', which has times of its own; write e.g. speed_up: 2, or drop it"}},
      {"speed_up", Real{&Spec::speed_up, 1e-3, 1e6}, "`trace`: the times in the file are divided by it",
       Refusal{RequestsBy::kMix, "stands beside 'mix', which has no times; write e.g. rate: 20, or drop it"}},
      {"skip_bad", Flag{&Spec::skip_bad},
       "`trace`: lines that are wrong, or do not fit the cache, are left out and counted; `false`: they are an error",
       Refusal{RequestsBy::kMix, "stands beside 'mix', which has no lines; drop it"}},
      {"columns", Columns{&Spec::columns},
       "`trace`: names of columns that differ from those of its form: `\"arrival=arrived_at,prompt=num_prefill_tokens\"`",
       Refusal{RequestsBy::kMix, "stands beside 'mix', which has no columns; drop it"}},
      {"step_ms", Real{&Spec::step_ms, 0, 1e6}, "time of a step without its tokens, for `rate` and `trace`"},
      {"token_us", Real{&Spec::token_us, 0, 1e6},
       "time that each query token adds to its step, for `rate` and `trace`"},
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
        } else if constexpr (std::is_same_v<Kind, Columns>) {
          TraceColumns columns;
          const std::string wrong = read_trace_columns(read_string(field), columns);
          if (!wrong.empty()) field.fail(wrong);
          spec.*k.member = read_string(field);
        } else {
          const std::string word = read_string(field);
          if (std::ranges::find(k.words, word) == k.words.end())
            field.fail(fmt::format("unknown word '{}'{}", word, suggest(word, k.words)));
          spec.*k.member = word;
        }
      },
      key.kind);
}

std::string value_text(const ServingKey& key, const Spec& spec) {
  const auto* columns = std::get_if<Columns>(&key.kind);
  if (columns != nullptr) {
    const std::string& text = spec.*columns->member;
    return text.empty() ? text : trace_path_text(text);
  }
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
        } else if constexpr (std::is_same_v<Kind, Columns>) {
          return {{"type", "string"}, {"pattern", "^(arrival|prompt|output|prefix)=."}};
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
        } else if constexpr (std::is_same_v<Kind, Columns>) {
          return "`PART=NAME,...`";
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

/// Checks that there is one of `mix` and `trace`, and no key that is for the other one.
void check_requests(const Field& field, const std::vector<Field>& entries) {
  const Field* mix = find_entry(entries, "mix");
  const Field* trace = find_entry(entries, "trace");
  if (mix == nullptr && trace == nullptr) {
    field.fail("'mix' or 'trace' is missing, expected e.g. {mix: azure_conv_2023} or {trace: my_trace.csv}");
  }
  if (mix != nullptr && trace != nullptr) trace->fail("stands beside 'mix', expected one of them");
  const RequestsBy requests = trace != nullptr ? RequestsBy::kTrace : RequestsBy::kMix;
  for (const ServingKey& key : serving_keys()) {
    const Field* entry = find_entry(entries, key.name);
    if (entry != nullptr && !key.is_for(requests)) entry->fail(key.refusal->error);
  }
}

}  // namespace

ServingSpec read_serving(const Field& field, uint64_t file_seed) {
  ServingSpec spec;
  spec.seed = file_seed;
  std::vector<std::string> allowed = {"mix", "trace", "step", "seed"};
  for (const ServingKey& key : serving_keys()) allowed.emplace_back(key.name);
  const std::vector<Field> entries = entries_of(field, "'serving'");
  for (const Field& e : entries) {
    const auto key =
        std::ranges::find_if(serving_keys(), [&](const ServingKey& k) { return e.key == k.name; });
    if (key != serving_keys().end()) {
      read_value(e, *key, spec);
    } else if (e.key == "mix") {
      spec.mix = read_string(e);
      if (find_mix(spec.mix) == nullptr)
        e.fail(fmt::format("unknown mix '{}'{}; the file of a trace is named by 'trace'", spec.mix,
                           suggest(spec.mix, mix_names())));
    } else if (e.key == "trace") {
      spec.trace = read_trace_path(e);
    } else if (e.key == "step") {
      spec.step = read_step(e);
    } else if (e.key == "seed") {
      spec.seed = read_unsigned(e);
    } else {
      fail_unknown_key(e, "'serving'", allowed);
    }
  }
  check_requests(field, entries);
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

namespace {

/// "first, token_budget: 128, seed: 1": what the keys of the table add to `first`, which may be empty.
std::string with_keys(std::string first, const ServingSpec& spec) {
  static const ServingSpec defaults;
  const auto add = [&](const char* name, const std::string& value) {
    first += fmt::format("{}{}: {}", first.empty() ? "" : ", ", name, value);
  };
  for (const ServingKey& key : serving_keys()) {
    const std::string value = value_text(key, spec);
    if (value != value_text(key, defaults)) add(key.name, value);
  }
  add("seed", fmt::format("{}", spec.seed));
  return first;
}

std::string mix_text(const ServingSpec& spec) { return fmt::format("mix: {}", spec.mix); }

}  // namespace

std::string serving_text(const ServingSpec& spec) {
  const std::string requests =
      spec.trace.empty() ? mix_text(spec) : fmt::format("trace: {}", trace_path_text(spec.trace));
  return fmt::format("{{{}}}", with_keys(fmt::format("{}, step: {}", requests, step_text(spec.step)), spec));
}

std::string replay_text(const ServingSpec& spec) {
  return fmt::format("{{{}}}", with_keys(spec.trace.empty() ? mix_text(spec) : "", spec));
}

namespace {

/// The schema of a mapping that names its requests by the key `name`.
Json schema_with(const char* name, const Json& value, RequestsBy requests) {
  Json properties;
  properties[name] = value;
  const Json spread = object_schema(
      Json::array({"spread"}), {{"spread", {{"type", "integer"}, {"minimum", 2}, {"maximum", kMostSteps}}}});
  std::vector<std::string> words;
  for (const StepWord& w : kStepWords) words.emplace_back(w.word);
  properties["step"] = {
      {"anyOf",
       Json::array({Json{{"enum", words}},
                    Json{{"type", "integer"}, {"minimum", 0}, {"maximum", kMostSteps - 1}}, spread})}};
  properties["seed"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", UINT64_MAX}};
  for (const ServingKey& key : serving_keys()) {
    if (!key.is_for(requests)) continue;
    properties[key.name] = {{"description", key.doc}};
    properties[key.name].update(value_schema(key));
  }
  return object_schema(Json::array({name}), properties);
}

}  // namespace

nlohmann::ordered_json serving_schema() {
  return {{"anyOf", Json::array({schema_with("mix", {{"enum", mix_names()}}, RequestsBy::kMix),
                                 schema_with("trace",
                                             {{"description", "path of the file of a trace"},
                                              {"type", "string"},
                                              {"minLength", 1}},
                                             RequestsBy::kTrace)})}};
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
