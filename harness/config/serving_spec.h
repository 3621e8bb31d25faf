// The value of `batch: {serving: {...}}`: the replay of a server under a mix or a trace of requests, and which of its
// steps are cases. serving/replay.h computes the steps.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace attnbench {

/// Which steps of a replay become cases.
struct StepChoice {
  enum class Kind { kFirst, kP50, kP99, kSpread, kAll, kIndex };
  Kind kind = Kind::kSpread;
  int64_t number = 64;  ///< kSpread: how many steps; kIndex: which one
  bool operator==(const StepChoice&) const = default;
};

/// A replay. Lengths are in tokens.
struct ServingSpec {
  std::string mix;    ///< a name of mixes.h; empty: the requests are those of a trace
  std::string trace;  ///< path of its file, absolute or from the current folder; empty: of a mix
  StepChoice step;
  int64_t steps = 2000;   ///< of the replay
  int64_t warmup = 1000;  ///< steps before it, while the cache fills
  double rate = 0;        ///< of a mix: requests per second, at random; 0: all wait from the start
  double speed_up = 1;    ///< of a trace: times are divided by it
  bool skip_bad = false;  ///< of a trace: wrong lines are left out
  std::string columns;    ///< of a trace: as trace_columns.h reads them; empty: those of its form
  double step_ms = 15, token_us = 20;  ///< time of a step: step_ms + token_us for each query token
  int64_t max_sequences = 64;
  int64_t token_budget = 2048;  ///< query tokens of a step
  bool chunked_prefill = true;
  int64_t cache_tokens = 512 * 1024;
  std::string free_order = "lifo";
  bool prefix_sharing = true;
  std::string preemption = "recompute";
  int64_t draft_tokens = 0;
  double acceptance = 0.7;
  uint64_t seed = 1;
  bool operator==(const ServingSpec&) const = default;

  /// How many cases it stands for.
  int64_t cases() const;
};

/// The `index`-th of the steps that a value chooses, before the replay is computed.
struct ServingPick {
  std::shared_ptr<const ServingSpec> spec;
  int64_t index = 0;
  bool operator==(const ServingPick& o) const {
    return index == o.index && (spec == o.spec || *spec == *o.spec);
  }
};

/// A step of a replay, as a case has it.
struct ServedStep {
  std::string mix;            ///< empty: the requests are those of a trace
  std::string trace;          ///< path of its file; empty: of a mix
  std::string digest;         ///< of the trace's file: 8 hexadecimal digits
  std::string replay;         ///< the replay as a mapping: replay_text()
  int64_t step = 0;           ///< from 0, behind the warm-up
  int64_t steps = 0;          ///< of the replay
  int64_t output_tokens = 0;  ///< that the replay generates
  /// Steps of the replay are divided into strata, from which `spread` draws: the stratum of this step, and how many
  /// steps that has. -1: the step was not drawn.
  int64_t stratum = -1, stratum_steps = 0;
  int64_t drawn = 0;  ///< steps of the sample that this one is of
  bool operator==(const ServedStep&) const = default;

  /// "azure_conv_2023-4f1cx16": the mix, a digest of the replay, and of how many steps the sample is. For
  /// a trace "my_trace-0123abcd-4f1cx16", with the file's stem and digest. It says nothing of where the file lies.
  std::string sample_label() const;
  /// The same with "-step17".
  std::string label() const;
};

/// The mapping that reads back as this one: keys at their default are left out, the seed is not.
std::string serving_text(const ServingSpec& spec);

/// The same without the choice of steps and without the path of a trace.
std::string replay_text(const ServingSpec& spec);

/// The value of `batch` that stands for this step alone.
std::string serving_batch_text(const ServedStep& step);

/// A step as records and messages to workers have it. What a step lacks is left out.
nlohmann::ordered_json served_json(const ServedStep& step);
/// Reads it back; what is missing keeps its default. Throws nlohmann::json::exception if a value has another type.
ServedStep served_from_json(const nlohmann::json& j);

}  // namespace attnbench
