#include "harness/config/mixes.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnbench {
namespace {

LengthDistribution by_quantiles(std::vector<Quantile> table) {
  LengthDistribution d;
  d.shape = LengthDistribution::Shape::kQuantiles;
  d.clip_lo = table.front().tokens;
  d.clip_hi = table.back().tokens;
  d.quantiles = std::move(table);
  return d;
}

/// If only the mean is known: lognormal with sigma 1.
LengthDistribution by_mean(double mean, int64_t longest) {
  LengthDistribution d;
  d.shape = LengthDistribution::Shape::kLognormal;
  d.median = mean / 1.6487212707;  // exp(1/2)
  d.sigma = 1.0;
  d.clip_lo = 1;
  d.clip_hi = longest;
  return d;
}

// Primary quantiles are those of the trace, the smallest length that at least this part does not exceed. The
// probabilities were chosen so that the distribution between them is close to the trace's.
std::vector<Mix> make_mixes() {
  std::vector<Mix> all;
  all.push_back({
      .name = "azure_code_2023",
      .description = "code completion: prompts of a file or so, very short outputs",
      .prompt = by_quantiles({{0, 3},
                              {.02, 35},
                              {.05, 75},
                              {.09, 130},
                              {.22, 469},
                              {.31, 816},
                              {.5, 1469},
                              {.79, 3066},
                              {.85, 3923},
                              {.9, 5194},
                              {.96, 7431},
                              {.97, 7435},
                              {.99, 7436},
                              {1, 7437}}),
      .output = by_quantiles({{0, 6},
                              {.02, 6},
                              {.26, 9},
                              {.5, 13},
                              {.62, 16},
                              {.72, 21},
                              {.82, 32},
                              {.9, 55},
                              {.96, 105},
                              {.98, 172},
                              {.99, 252},
                              {.995, 361},
                              {.999, 831},
                              {1, 1899}}),
      .prefixes = {},
      .source =
          "https://github.com/Azure/AzurePublicDataset (AzureLLMInferenceTrace_code.csv; Splitwise, ISCA 2024)",
      .primary = "all quantiles, of 8,819 requests",
      .second_hand =
          "the paper gives the median prompt as 1,500; the trace has 1,469. Shared prefixes are not published",
  });
  all.push_back({
      .name = "azure_conv_2023",
      .description = "conversation: prompts of about 1,000 tokens, outputs of 50 to 450",
      .prompt = by_quantiles({{0, 2},
                              {.03, 161},
                              {.18, 381},
                              {.27, 399},
                              {.35, 414},
                              {.49, 1014},
                              {.5, 1020},
                              {.67, 1109},
                              {.74, 1171},
                              {.82, 1369},
                              {.9, 2735},
                              {.94, 4079},
                              {.99, 4142},
                              {1, 14050}}),
      .output = by_quantiles({{0, 7},
                              {.04, 38},
                              {.13, 62},
                              {.18, 73},
                              {.47, 118},
                              {.5, 129},
                              {.62, 190},
                              {.69, 378},
                              {.72, 390},
                              {.81, 402},
                              {.9, 424},
                              {.94, 442},
                              {.99, 601},
                              {1, 1000}}),
      .prefixes = {},
      .source =
          "https://github.com/Azure/AzurePublicDataset (AzureLLMInferenceTrace_conv.csv; Splitwise, ISCA 2024)",
      .primary = "all quantiles, of 19,366 requests; the medians are those of the paper",
      .second_hand = "shared prefixes are not published",
  });
  all.push_back({
      .name = "sharegpt",
      .description = "chat with an early assistant: short prompts, long outputs",
      .prompt = by_quantiles({{0, 4}, {.5, 74}, {.8, 348}, {.95, 1484}, {.99, 3388}, {1, 16384}}),
      .output = by_quantiles({{0, 4}, {.5, 487}, {.8, 781}, {.95, 988}, {.99, 1234}, {1, 2048}}),
      .prefixes = {},
      .source = "https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered",
      .primary = "",
      .second_hand = "P50, P80, P95 and P99 are quoted; the least and the greatest length are assumed. "
                     "Tokens depend on the tokenizer",
  });
  all.push_back({
      .name = "burstgpt_gpt4_conv",
      .description = "conversation with GPT-4 at a campus: medium prompts and outputs",
      .prompt = by_quantiles({{0, 16}, {.5, 582}, {.8, 1427}, {.95, 2345}, {.99, 3549}, {1, 8192}}),
      .output = by_quantiles({{0, 4}, {.5, 243}, {.8, 434}, {.95, 669}, {.99, 964}, {1, 2048}}),
      .prefixes = {},
      .source = "https://github.com/HPMLL/BurstGPT (arXiv 2401.17644)",
      .primary = "",
      .second_hand = "P50, P80, P95 and P99 are quoted; the least and the greatest length are assumed",
  });
  all.push_back({
      .name = "mooncake_conv",
      .description =
          "conversation with long documents: prompts to 126,000 tokens, in sessions of several turns",
      .prompt = by_quantiles({{0, 891},
                              {.06, 904},
                              {.1, 964},
                              {.17, 1402},
                              {.35, 4250},
                              {.38, 4700},
                              {.5, 6909},
                              {.83, 19775},
                              {.9, 27367},
                              {.93, 32406},
                              {.95, 39552},
                              {.97, 52219},
                              {.99, 85401},
                              {1, 126195}}),
      .output = by_quantiles({{0, 1},
                              {.06, 13},
                              {.2, 100},
                              {.26, 169},
                              {.29, 204},
                              {.36, 265},
                              {.43, 311},
                              {.5, 350},
                              {.54, 370},
                              {.81, 511},
                              {.9, 597},
                              {.95, 698},
                              {.99, 1120},
                              {1, 2000}}),
      .prefixes = {.kind = PrefixSharing::Kind::kTurns,
                   .share = 0.40,
                   .streams = 256,
                   .system_tokens = 512,
                   .follow_ups = 0.39},
      .source =
          "https://github.com/kvcache-ai/Mooncake (FAST25-release/traces/conversation_trace.jsonl; FAST 2025)",
      .primary =
          "all quantiles, the common first 512 tokens and the part of follow-ups (39 %), of 12,031 requests",
      .second_hand = "40 % of shared tokens is the paper's; in blocks of 512 tokens the trace has 37 %. "
                     "256 sessions at a time are assumed",
  });
  all.push_back({
      .name = "mooncake_toolagent",
      .description = "tools and agents: long system prompts that many requests repeat, short outputs",
      .prompt = by_mean(8596, 1 << 17),
      .output = by_mean(182, 1 << 14),
      .prefixes = {.kind = PrefixSharing::Kind::kSystemPrompts, .share = 0.59, .streams = 16},
      .source =
          "https://github.com/kvcache-ai/Mooncake (FAST25-release/traces/toolagent_trace.jsonl; FAST 2025)",
      .primary = "",
      .second_hand =
          "the means 8,596 and 182 and the share of 59 % are the authors'; that lengths are lognormal with "
          "sigma 1, and that there are 16 system prompts, is assumed",
  });
  all.push_back({
      .name = "agent_append",
      .description = "coding agents: some hundred tokens appended to a known context of 64k to 128k",
      .prompt = by_quantiles({{0, 100}, {.5, 793}, {.9, 3700}, {.99, 12800}, {1, 44000}}),
      .output = by_quantiles({{0, 16}, {.25, 132}, {.5, 252}, {.9, 1671}, {.99, 6571}, {1, 16384}}),
      .prefixes = {.kind = PrefixSharing::Kind::kAppend,
                   .share = 0.96,
                   .streams = 16,
                   .first = 1 << 16,
                   .last = 1 << 17},
      .source = "https://tracelab.cs.washington.edu/exp/llm_generation/append_by_prefix_bin/",
      .primary = "",
      .second_hand =
          "P50, P90 and P99 appended to 64k to 128k, and P25 to P99 of outputs, are quoted; the least and "
          "the greatest length and 16 sessions at a time are assumed",
  });
  return all;
}

/// "P0 3, P50 1,469, ...": the table itself.
std::string lengths_text(const LengthDistribution& d) {
  if (d.shape == LengthDistribution::Shape::kLognormal)
    return fmt::format("lognormal, median {:.0f}, sigma {:g}, at most {}", d.median, d.sigma, d.clip_hi);
  std::string text;
  for (const Quantile& q : d.quantiles)
    text += fmt::format("{}P{:.4g} {}", text.empty() ? "" : ", ", 100 * q.probability, q.tokens);
  return text;
}

std::string prefixes_text(const PrefixSharing& p) {
  const std::string share = fmt::format("{:g} % of all prompt tokens", 100 * p.share);
  switch (p.kind) {
    case PrefixSharing::Kind::kTurns:
      return fmt::format(
          "{}: all prompts begin with the same {} tokens, and {:g} % go on with an earlier one", share,
          p.system_tokens, 100 * p.follow_ups);
    case PrefixSharing::Kind::kSystemPrompts:
      return fmt::format("{}: the heads of {} system prompts", share, p.streams);
    case PrefixSharing::Kind::kAppend:
      return fmt::format("{}: {} sessions that grow from {} to {} tokens", share, p.streams, p.first, p.last);
    case PrefixSharing::Kind::kNone:
      break;
  }
  return "none";
}

}  // namespace

std::span<const Mix> mixes() {
  static const std::vector<Mix> all = make_mixes();
  return all;
}

const Mix* find_mix(std::string_view name) {
  const auto found = std::ranges::find_if(mixes(), [&](const Mix& m) { return m.name == name; });
  return found == mixes().end() ? nullptr : &*found;
}

std::vector<std::string> mix_names() {
  std::vector<std::string> names;
  for (const Mix& m : mixes()) names.push_back(m.name);
  return names;
}

std::string mixes_markdown() {
  std::string text;
  for (const Mix& m : mixes()) {
    text += fmt::format("## {}\n\n{}\n\n", m.name, m.description);
    text += fmt::format("- {} tokens: {}\n",
                        m.prefixes.kind == PrefixSharing::Kind::kAppend ? "Appended" : "Prompt",
                        lengths_text(m.prompt));
    text += fmt::format("- Output tokens: {}\n", lengths_text(m.output));
    text += fmt::format("- Shared prefixes: {}.\n", prefixes_text(m.prefixes));
    text += fmt::format("- Source: {}\n", m.source);
    text +=
        fmt::format("- Computed from the published data: {}.\n", m.primary.empty() ? "nothing" : m.primary);
    text += fmt::format("- Second-hand or assumed: {}.\n\n", m.second_hand);
  }
  text.pop_back();
  return text;
}

}  // namespace attnbench
