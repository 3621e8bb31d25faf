#include "harness/config/serving_spec.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/config/trace_path.h"
#include "harness/digest.h"

namespace attnbench {

int64_t ServingSpec::cases() const {
  if (step.kind == StepChoice::Kind::kSpread) return step.number;
  return step.kind == StepChoice::Kind::kAll ? steps : 1;
}

std::string ServedStep::sample_label() const {
  Digest of_replay;
  of_replay.add_text(replay);
  return fmt::format("{}-{:04x}{}", trace.empty() ? mix : fmt::format("{}-{}", trace_name(trace), digest),
                     of_replay.value32() & 0xffff, stratum < 0 ? "" : fmt::format("x{}", drawn));
}

std::string ServedStep::label() const { return fmt::format("{}-step{}", sample_label(), step); }

std::string serving_batch_text(const ServedStep& step) {
  // A replay's mapping is never empty: it has a seed.
  const std::string keys = step.replay.substr(1, step.replay.size() - 2);
  const std::string trace = step.trace.empty() ? "" : fmt::format("trace: {}, ", trace_path_text(step.trace));
  return fmt::format("{{serving: {{{}{}, step: {}}}}}", trace, keys, step.step);
}

nlohmann::ordered_json served_json(const ServedStep& s) {
  nlohmann::ordered_json j;
  if (s.trace.empty()) {
    j["mix"] = s.mix;
  } else {
    j["trace"] = s.trace;
    j["digest"] = s.digest;
  }
  j["replay"] = s.replay;
  j["step"] = s.step;
  j["steps"] = s.steps;
  j["output_tokens"] = s.output_tokens;
  if (s.stratum < 0) return j;
  j["stratum"] = s.stratum;
  j["stratum_steps"] = s.stratum_steps;
  j["drawn"] = s.drawn;
  return j;
}

ServedStep served_from_json(const nlohmann::json& j) {
  const ServedStep none;
  ServedStep s;
  s.mix = j.value("mix", none.mix);
  s.trace = j.value("trace", none.trace);
  s.digest = j.value("digest", none.digest);
  s.replay = j.value("replay", none.replay);
  s.step = j.value("step", none.step);
  s.steps = j.value("steps", none.steps);
  s.output_tokens = j.value("output_tokens", none.output_tokens);
  s.stratum = j.value("stratum", none.stratum);
  s.stratum_steps = j.value("stratum_steps", none.stratum_steps);
  s.drawn = j.value("drawn", none.drawn);
  return s;
}

}  // namespace attnbench
