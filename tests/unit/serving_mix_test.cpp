// The published mixes: lengths against their tables, shared prefixes, and the same requests everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "harness/digest.h"
#include "harness/error.h"
#include "harness/serving/mix_requests.h"
#include "harness/serving/step_history.h"

namespace attnbench {
namespace {

std::vector<Request> requests_of(const Mix& mix, std::size_t count, int32_t block_size, uint64_t seed = 7,
                                 double per_s = 0) {
  MixRequests next(mix, per_s, block_size, seed);
  std::vector<Request> all(count);
  for (Request& r : all) EXPECT_TRUE(next(r));
  return all;
}

/// The part of prompt tokens that a cache without end would find.
double found_part(const std::vector<Request>& requests, int32_t block_size) {
  std::unordered_set<uint64_t> known;
  double found = 0, all = 0;
  for (const Request& r : requests) {
    const auto most =
        std::min(r.prefix_hashes.size(), static_cast<std::size_t>((r.prompt_tokens - 1) / block_size));
    std::size_t blocks = 0;
    while (blocks < most && known.contains(r.prefix_hashes[blocks])) ++blocks;
    known.insert(r.prefix_hashes.begin(), r.prefix_hashes.end());
    found += static_cast<double>(blocks) * block_size;
    all += r.prompt_tokens;
  }
  return found / all;
}

/// Each quantile of the table lies between the part of draws below it and the part up to it.
void expect_quantiles(const LengthDistribution& d, LengthOf which, const std::string& name) {
  constexpr uint32_t kDraws = 40000;
  std::vector<int64_t> lengths(kDraws);
  for (uint32_t i = 0; i < kDraws; ++i) lengths[i] = draw_length(d, 3, i, which);
  std::sort(lengths.begin(), lengths.end());
  for (const Quantile& q : d.quantiles) {
    const auto [first, last] = std::equal_range(lengths.begin(), lengths.end(), q.tokens);
    const double error = 5 * std::sqrt(q.probability * (1 - q.probability) / kDraws);
    EXPECT_LE(static_cast<double>(first - lengths.begin()) / kDraws, q.probability + error)
        << name << ' ' << q.tokens;
    EXPECT_GE(static_cast<double>(last - lengths.begin()) / kDraws, q.probability - error)
        << name << ' ' << q.tokens;
  }
}

TEST(Mixes, DrawTheirQuantiles) {
  for (const Mix& mix : mixes()) {
    expect_quantiles(mix.prompt, LengthOf::kQuery, mix.name + " prompt");
    expect_quantiles(mix.output, LengthOf::kKey, mix.name + " output");
  }
}

TEST(Mixes, HaveThePublishedMeansAndMedians) {
  const auto mean_of = [](const LengthDistribution& d) {
    double sum = 0;
    for (uint32_t i = 0; i < 200000; ++i) sum += static_cast<double>(draw_length(d, 3, i, LengthOf::kBoth));
    return sum / 200000;
  };
  for (const auto& [name, prompt, output] :
       {std::tuple("azure_code_2023", 2047.8, 27.9), std::tuple("azure_conv_2023", 1154.7, 211.1),
        std::tuple("mooncake_conv", 12035.1, 342.6), std::tuple("mooncake_toolagent", 8596.0, 182.0)}) {
    EXPECT_NEAR(mean_of(find_mix(name)->prompt) / prompt, 1, 0.03) << name;
    EXPECT_NEAR(mean_of(find_mix(name)->output) / output, 1, 0.03) << name;
  }
}

TEST(Mixes, SayWhereTheyComeFrom) {
  ASSERT_EQ(mixes().size(), 7u);
  for (const Mix& mix : mixes()) {
    EXPECT_EQ(find_mix(mix.name), &mix);
    EXPECT_EQ(mix.source.rfind("https://", 0), 0u) << mix.name;
    EXPECT_FALSE(mix.second_hand.empty()) << mix.name;
  }
  EXPECT_EQ(find_mix("azure"), nullptr);
}

TEST(MixRequests, ShareWhatTheMixSays) {
  for (const Mix& mix : mixes()) {
    for (const int32_t block_size : {64, 512}) {
      EXPECT_NEAR(found_part(requests_of(mix, 23608, block_size), block_size), mix.prefixes.share, 0.015)
          << mix.name << ", blocks of " << block_size;
    }
  }
}

TEST(MixRequests, AppendToKnownContexts) {
  const std::vector<Request> requests = requests_of(*find_mix("agent_append"), 2000, 16);
  for (const Request& r : requests) {
    EXPECT_GT(r.prompt_tokens, 1 << 16);
    EXPECT_LE(r.prompt_tokens, 1 << 17);
    EXPECT_EQ(static_cast<int32_t>(r.prefix_hashes.size()), r.prompt_tokens / 16);
  }
}

TEST(MixRequests, ArriveAtTheRate) {
  const std::vector<Request> at_once = requests_of(*find_mix("sharegpt"), 100, 16);
  EXPECT_EQ(at_once.back().arrival_ns, 0);
  const std::vector<Request> spread = requests_of(*find_mix("sharegpt"), 10000, 16, 7, 50);
  EXPECT_NEAR(static_cast<double>(spread.back().arrival_ns) * 1e-9, 200,
              10);  // 10,000 gaps: a deviation of 2 s
  EXPECT_THROW(MixRequests(*find_mix("sharegpt"), -1, 16, 1), Error);
  EXPECT_THROW(MixRequests(*find_mix("sharegpt"), 0, 0, 1), Error);
}

TEST(MixRequests, AreTheSameOnEveryMachine) {
  Digest digest;
  for (const Mix& mix : mixes()) {
    for (const Request& r : requests_of(mix, 300, 16, 1, 10)) {
      digest.add_word(static_cast<uint64_t>(r.arrival_ns));
      digest.add_bytes(r.prompt_tokens);
      digest.add_bytes(r.output_tokens);
      for (const uint64_t hash : r.prefix_hashes) digest.add_word(hash);
    }
  }
  EXPECT_EQ(digest.value(), 17274872963782590816u);
}

TEST(Histogram, KeepsQuantilesToWithinASixtyFourth) {
  Histogram h;
  for (int64_t i = 1; i <= 100000; ++i) h.add(i);
  EXPECT_DOUBLE_EQ(h.mean(), 50000.5);
  EXPECT_EQ(h.quantile(0.001), 100);
  EXPECT_EQ(h.quantile(1), 100000);
  EXPECT_EQ(h.max(), 100000);
  for (const double p : {0.01, 0.5, 0.99}) {
    EXPECT_GE(static_cast<double>(h.quantile(p)), p * 100000);
    EXPECT_LE(static_cast<double>(h.quantile(p)), p * 100000 * (1 + 1.0 / 64));
  }
  EXPECT_EQ(Histogram().quantile(0.5), 0);
}

TEST(StepHistory, JoinsSlicesAndLosesNoStep) {
  StepHistory history;
  Step step;
  for (int64_t i = 0; i < 5000; ++i) {
    step.index = i;
    step.start_ns = 10 * i;
    step.duration_ns = 10;
    step.query_tokens = static_cast<int32_t>(i % 7);
    step.owned_blocks = 3;
    history.add(step);
    ASSERT_LE(history.slices().size(), 2 * StepHistory::kSlices);
  }
  const HistorySlice all = history.total();
  EXPECT_EQ(all.steps, 5000);
  EXPECT_EQ(all.duration_ns, 50000);
  EXPECT_EQ(all.owned_blocks, 15000);
  EXPECT_EQ(all.query_tokens, 714 * 21 + 0 + 1);
  int64_t next = 0;
  for (const HistorySlice& s : history.slices()) {
    EXPECT_EQ(s.start_ns, next);
    next += s.duration_ns;
  }
}

}  // namespace
}  // namespace attnbench
