// Published mixes of requests by name: how long prompts and outputs are, and how prompts share prefixes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/lengths.h"

namespace attnbench {

/// How the prompts of a mix begin.
struct PrefixSharing {
  enum class Kind {
    kNone,           ///< no prompt shares anything
    kTurns,          ///< some prompts go on with an earlier prompt; all begin with one system prompt
    kSystemPrompts,  ///< a part of each prompt is the head of one of several long system prompts
    kAppend,         ///< each prompt is all of an earlier one and some tokens more
  };
  Kind kind = Kind::kNone;
  double share = 0.0;         ///< of all prompt tokens: what a cache without end would find
  int32_t streams = 0;        ///< sessions that go on at a time; system prompts
  int32_t system_tokens = 0;  ///< turns: tokens that all prompts begin with
  double follow_ups = 0.0;    ///< turns: the part of prompts that go on with an earlier one
  int64_t first = 0,
          last = 0;  ///< append: a session begins with `first` tokens, and ends before it has `last`
};

struct Mix {
  std::string name;
  std::string description;    ///< one line
  LengthDistribution prompt;  ///< kAppend: only the tokens appended
  LengthDistribution output;
  PrefixSharing prefixes;
  std::string source;   ///< address of the data or the paper
  std::string primary;  ///< which figures were computed from the published data; empty: none
  std::string
      second_hand;  ///< which figures are quoted or assumed, and where computed ones differ; empty: none
};

std::span<const Mix> mixes();

/// Null if there is no such mix.
const Mix* find_mix(std::string_view name);

std::vector<std::string> mix_names();

/// All mixes with quantiles and sources, for `attnbench list --mixes`.
std::string mixes_markdown();

}  // namespace attnbench
