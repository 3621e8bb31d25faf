// Batches with braces, and numbers of tokens with a suffix: what they stand for, wherever they may stand.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "harness/config/batch_product.h"
#include "harness/config/keys.h"
#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> specs_of(std::string_view product) {
  std::vector<std::string> specs;
  for (const auto& batch : parse_batch_product(product)) specs.push_back(format_batch_spec(batch));
  return specs;
}

TEST(BatchProduct, MultipliesItsGroupsInReadingOrder) {
  EXPECT_THAT(specs_of("{1,4,16}q1s{1k,4k}"),
              ElementsAre("q1s1k", "q1s4k", "4q1s1k", "4q1s4k", "16q1s1k", "16q1s4k"));
  EXPECT_THAT(specs_of("2q{1,2}_{3,4}q5"), ElementsAre("2q1_3q5", "2q1_4q5", "2q2_3q5", "2q2_4q5"));
  EXPECT_THAT(specs_of("q{1,3}k"), ElementsAre("q1k", "q3k"));
  EXPECT_THAT(specs_of("{2}q{7}"), ElementsAre("2q7"));
  EXPECT_THAT(specs_of("{0,2}q7"), ElementsAre("0q0", "2q7"));
  EXPECT_THAT(specs_of("8q1s1k_q512"), ElementsAre("8q1s1k_q512"));
}

TEST(BatchProduct, RangesStandForTheirNumbers) {
  EXPECT_EQ(specs_of("{4..64}q1s4k"), specs_of([] {
              std::string all = "{4";
              for (int n = 5; n <= 64; ++n) all += fmt::format(",{}", n);
              return all + "}q1s4k";
            }()));
  EXPECT_THAT(specs_of("q{1..9..4}"), ElementsAre("q1", "q5", "q9"));
  EXPECT_THAT(specs_of("q1s{1k..5k..x2}"), ElementsAre("q1s1k", "q1s2k", "q1s4k"));
  EXPECT_THAT(specs_of("{1,3..4}q{2..2}"), ElementsAre("q2", "3q2", "4q2"));
  for (const char* wrong : {"{4..1}q1", "{..4}q1", "{1..}q1", "{1..4..0}q1", "{1..4..x1}q1", "{0..4..x2}q1",
                            "{1...4}q1", "{1..4..2..2}q1", "{1..99999999999999999999}q1"}) {
    try {
      parse_batch_product(wrong);
      ADD_FAILURE() << wrong;
    } catch (const BatchSpecError& e) {
      EXPECT_THAT(e.what(), HasSubstr("which is no range: LO..HI")) << wrong;
    }
  }
  EXPECT_THROW(parse_batch_product("{1..20000}q1"), BatchSpecError);
  EXPECT_THROW(parse_batch_product("{1..9000000000000000000}q1"), BatchSpecError);
}

/// One number of a spec: its text in a product, and the numbers that it stands for.
struct Number {
  std::string text;
  std::vector<std::string> items;
};

// Any product is the list that nested loops over its numbers would write.
TEST(BatchProduct, IsTheListWrittenByHand) {
  std::mt19937 random(5);
  const auto number = [&](bool suffix) {
    Number n;
    const unsigned items = random() % 2 == 0 ? 1 : 1 + random() % 3;
    for (unsigned i = 0; i < items; ++i) {
      n.items.push_back(std::to_string(random() % 99) + (suffix && random() % 3 == 0 ? "k" : ""));
    }
    n.text = items == 1 && random() % 2 == 0 ? n.items[0] : fmt::format("{{{}}}", fmt::join(n.items, ","));
    return n;
  };
  for (int round = 0; round < 300; ++round) {
    std::string product;
    std::vector<std::string> written = {""};
    const auto text = [&](const char* t) {
      product += t;
      for (std::string& w : written) w += t;
    };
    const auto choice = [&](bool suffix) {
      const Number n = number(suffix);
      product += n.text;
      std::vector<std::string> longer;
      for (const std::string& w : written) {
        for (const std::string& item : n.items) longer.push_back(w + item);
      }
      written = longer;
    };
    const unsigned segments = 1 + random() % 3;
    for (unsigned s = 0; s < segments; ++s) {
      if (s > 0) text("_");
      if (random() % 2 == 0) choice(false);
      text("q");
      choice(true);
      if (random() % 2 == 0) continue;
      text("s");
      choice(true);
    }
    std::vector<std::vector<SeqLen>> expected;
    for (const std::string& w : written) expected.push_back(parse_batch_spec(w));
    ASSERT_EQ(parse_batch_product(product), expected) << product;
  }
}

struct BadProduct {
  const char* spec;
  std::size_t offset;
  const char* message;
};

TEST(BatchProduct, ErrorsNameThePlace) {
  for (const BadProduct& bad : std::vector<BadProduct>{
           {"{1,4q1", 0, "opens a brace at character 1 and does not close it"},
           {"q1s{1k", 3, "opens a brace at character 4"},
           {"1,4}q1", 3, "closes a brace at character 4 that none opened"},
           {"{1}}q1", 3, "closes a brace at character 4"},
           {"{1,{2}}q1", 3, "opens a brace inside another one at character 4"},
           {"{}q1", 1, "empty item in braces at character 2"},
           {"{1,,4}q1", 3, "empty item in braces at character 4"},
           {"{1,}q1", 3, "empty item in braces at character 4"},
           {"{1,x}q1", 3, "has 'x' in braces at character 4, which is no number"},
           {"{1, 2}q1", 3, "has ' 2' in braces"},
           {"{q1,q2}", 1, "has 'q1' in braces"},
           {"q1{s1,s2}", 2, "braces at character 3, where no whole number stands"},
           {"4{1,2}q1", 1, "where no whole number stands"},
           {"{1,2}4q1", 0, "where no whole number stands"},
           {"{1,2}{3}q1", 0, "where no whole number stands"},
           {"q1k{2}", 3, "where no whole number stands"},
           {"{1k,2}q1", 2, "of '{1k,2}q1': batch spec '1kq1' needs 'q' at character 2"},
           {"{1,4}x1", 5, "of '{1,4}x1': batch spec '1x1' needs 'q'"},
           {"{1,4}q", 6, "a query length must follow, got the end"},
           {"{1,4}q1s{1,2000m}", 11, "the key length may be 1073741824 at most"},
           {"{1000000,1000001,1000002,1000003,1000004}q1", 0, "more than 4194304 sequences in all"},
       }) {
    try {
      parse_batch_product(bad.spec);
      ADD_FAILURE() << bad.spec << " was accepted";
    } catch (const BatchSpecError& e) {
      EXPECT_EQ(e.offset, bad.offset) << bad.spec << ": " << e.what();
      EXPECT_THAT(e.what(), HasSubstr(bad.message)) << bad.spec;
    }
  }
}

TEST(BatchProduct, IsOfBoundedSize) {
  const std::string ten = "{1,2,3,4,5,6,7,8,9,10}";
  const auto product = [&](int groups) {
    std::string spec;
    for (int i = 0; i < groups; ++i) spec += fmt::format("{}q{}", i == 0 ? "" : "_", ten);
    return spec;
  };
  EXPECT_EQ(parse_batch_product(product(4)).size(), kMaxBatches);
  EXPECT_THROW(parse_batch_product(product(5)), BatchSpecError);
  EXPECT_THROW(parse_batch_product(product(200)), BatchSpecError) << "no number overflows";
  std::string much = product(4);
  for (int i = 0; i < 5000; ++i) much += "_0q0";
  EXPECT_THROW(parse_batch_product(much), BatchSpecError) << "10,000 batches of 20,000 characters";
}

std::vector<std::string> axis_of(const SweepFile& file, std::size_t axis = 0) {
  std::vector<std::string> texts;
  for (const auto& point : file.sweeps.at(0).axes.at(axis).points) {
    for (const Setting& s : point) {
      if (s.key == "batch") texts.push_back(s.text);
    }
  }
  return texts;
}

std::string error_of_sweep(const std::string& sweep, const std::vector<std::string>& overrides = {}) {
  try {
    parse_sweep_text("name: t\nsweeps: [{" + sweep + "}]\n", "t.yaml", overrides);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(BatchProduct, IsAnAxisWhereverABatchStands) {
  const auto file = [](const std::string& sweep, const std::vector<std::string>& overrides = {}) {
    return parse_sweep_text("name: t\nsweeps: [{" + sweep + "}]\n", "t.yaml", overrides);
  };
  EXPECT_THAT(axis_of(file("batch: \"{1,2}q4\"")), ElementsAre("q4", "2q4"));
  EXPECT_THAT(axis_of(file("batch: [q7, \"{1,2}q4\", q9]")), ElementsAre("q7", "q4", "2q4", "q9"));
  EXPECT_THAT(axis_of(file("zip: {batch: \"{1,2}q4\", head_dim: [64, 128]}")), ElementsAre("q4", "2q4"));
  EXPECT_THAT(axis_of(parse_inline_case("{batch: \"{1,2}q4\"}")), ElementsAre("q4", "2q4"));
  for (const char* set :
       {"batch={1,2}q{4,5k}", "batch=\"{1,2}q{4,5k}\"", "batch=[q4, \"q5k\", '2q{4,5k}']"}) {
    EXPECT_THAT(axis_of(file("batch: q1", {set})), ElementsAre("q4", "q5k", "2q4", "2q5k")) << set;
  }
  EXPECT_EQ(file("batch: q1, exclude: [{batch: \"{1,2}q4\"}]").sweeps[0].exclude[0].any_of_each[0].size(),
            2u);
  EXPECT_TRUE(file("batch: \"{3}q4\"").sweeps[0].axes.empty()) << "one batch is no axis";
  EXPECT_THAT(axis_of(parse_sweep_text("name: t\nsweeps:\n  - batch: q{4,5k}\n", "t.yaml")),
              ElementsAre("q4", "q5k"))
      << "a text that does not begin with a brace needs no quotes on a line of its own";
}

TEST(BatchProduct, ErrorsInAFileNameTheColumn) {
  EXPECT_THAT(error_of_sweep("batch: \"{1,x}q4\""),
              StartsWith("t.yaml:2:22: error: key 'batch': batch spec '{1,x}q4'"));
  EXPECT_THAT(error_of_sweep("batch: {1,4}q4"), HasSubstr("a batch with braces stands in quotes"));
  EXPECT_THAT(error_of_sweep("batch: q{1,4}"), HasSubstr("a batch with braces stands in quotes"));
  EXPECT_THAT(error_of_sweep("zip: {batch: \"{1,2}q4\", head_dim: [64]}"),
              HasSubstr("has 1 values, but 'batch'"));
  EXPECT_THAT(error_of_sweep("batch: q1", {"batch={1,4q4"}), HasSubstr("opens a brace at character 1"));
}

CaseParams params_of(const std::string& entry) {
  CaseParams params;
  const SweepFile file = parse_inline_case("{" + entry + "}");
  for (const Setting& s : file.sweeps.at(0).fixed) s.apply(params);
  return params;
}

TEST(Suffixes, EqualTheNumberWrittenOutInEveryKeyOfTokens) {
  std::vector<std::string> tokens;
  for (const SweepKey& key : sweep_keys()) {
    if (!key.tokens) continue;
    tokens.push_back(key.name);
    const bool window = key.name == "window";
    for (const char* quote : {"", "\""}) {
      const auto entry = [&](const char* number) {
        return window ? fmt::format("window: \"{},{}\"", number, number)
                      : fmt::format("{}: {}{}{}", key.name, quote, number, quote);
      };
      EXPECT_EQ(params_of(entry("1k")),
                params_of(window ? "window: \"1024,1024\"" : fmt::format("{}: 1024", key.name)))
          << key.name;
    }
    EXPECT_THAT(error_of_sweep(fmt::format("{}: {}", key.name, window ? "\"2048m,0\"" : "2048m")),
                HasSubstr("expected"))
        << key.name << ": the bounds hold for suffixes too";
  }
  EXPECT_THAT(tokens, testing::IsSupersetOf({"block_size", "shared_prefix", "window"}));
  EXPECT_EQ(params_of("window: \"-1,1m\""), params_of("window: \"-1,1048576\""));
  EXPECT_EQ(params_of("window: \"4k, 0\"").window_left, 4096);
  EXPECT_EQ(params_of("shared_prefix: 1m").shared_prefix, 1 << 20);
}

TEST(Suffixes, EqualTheNumberWrittenOutInEveryLengthOfABatch) {
  const auto equal = [](const std::string& with, const std::string& written_out) {
    EXPECT_EQ(params_of("batch: " + with).seqs, params_of("batch: " + written_out).seqs) << with;
  };
  equal("{lengths: 4k, count: 2}", "{lengths: 4096, count: 2}");
  equal("{lengths: [1k, 5, '2k']}", "{lengths: [1024, 5, 2048]}");
  equal("{q: 1, s: {constant: 1m}, count: 1}", "{q: 1, s: {constant: 1048576}, count: 1}");
  equal("{q: 1, context: {uniform: [1k, 2k]}, count: 9}",
        "{q: 1, context: {uniform: [1024, 2048]}, count: 9}");
  equal("{lengths: {lognormal: {median: 2k, sigma: 1.5}, clip: [1k, 4k]}, count: 20}",
        "{lengths: {lognormal: {median: 2048, sigma: 1.5}, clip: [1024, 4096]}, count: 20}");
}

TEST(Suffixes, OthersAreRefused) {
  for (const char* text :
       {"4K", "4M", "4g", "4kk", "k", "-4k", "04k", "0k", "1.5k", "4 k", "99999999999999999m"}) {
    EXPECT_THAT(error_of_sweep(fmt::format("leftpad: {}", text)),
                HasSubstr("expected an integer from 0 to 1024 (1k: 1024, 1m: 1024^2)"))
        << text;
    EXPECT_THAT(error_of_sweep(fmt::format("batch: {{lengths: [{}]}}", text)),
                HasSubstr("(1k: 1024, 1m: 1024^2)"));
  }
  EXPECT_THAT(error_of_sweep("head_dim: 1k"), HasSubstr("got '1k', expected an integer from 1 to 576"));
  EXPECT_THAT(error_of_sweep("leftpad: \"4\""), HasSubstr("got the string '4'"));
}

}  // namespace
}  // namespace attnbench
