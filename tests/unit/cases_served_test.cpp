// Steps of a server as cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/cases/case.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

const std::string kServer =
    "mix: sharegpt, steps: 40, warmup: 10, max_sequences: 4, token_budget: 128, cache_tokens: 32k";

Expansion expand_sweep(const std::string& keys) {
  return expand(parse_sweep_text("name: t\nsweeps:\n  - {" + keys + "}\n", "t.yaml"));
}

std::string error_of(const std::string& keys) {
  try {
    expand_sweep(keys);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

std::string serving(const std::string& more, const std::string& server = kServer) {
  return "batch: {serving: {" + server + more + "}}";
}

TEST(Served, ACaseHasTheLengthsAndTheTableOfItsStep) {
  const Expansion e = expand_sweep("kv: paged, " + serving(", step: {spread: 8}"));
  ASSERT_EQ(e.cases.size(), 8u);
  for (const Case& c : e.cases) {
    EXPECT_THAT(c.id, HasSubstr("paged16-nhd-served" + c.params.blocks->digest()));
    EXPECT_THAT(c.id, HasSubstr("/sharegpt-"));
    EXPECT_THAT(c.id, HasSubstr("-step" + std::to_string(c.params.served->step) + "-"));
    EXPECT_EQ(c.params.blocks->ids().size(), c.params.seqs.size());
  }
}

TEST(Served, TheMappingOfACaseReproducesIt) {
  for (const std::string keys : {"kv: paged, block_size: 64, ", "kv: paged, page_layout: shuffled, ",
                                 "kv: packed, ", "op: kv_append, "}) {
    for (const Case& c : expand_sweep(keys + serving(", step: {spread: 4}, rate: 9")).cases) {
      const Expansion again = expand(parse_inline_case(case_yaml(c.params, c.batch)));
      ASSERT_EQ(again.cases.size(), 1u) << c.batch;
      // It is the same problem, and no part of a sample.
      std::string id = c.id;
      id.erase(id.find("x4-step"), 2);
      EXPECT_EQ(again.cases[0].id, id);
      EXPECT_EQ(again.cases[0].params.seqs, c.params.seqs);
    }
  }
}

TEST(Served, AnotherPageLayoutHasTheSameLengths) {
  const Expansion e =
      expand_sweep("kv: paged, page_layout: [served, shuffled, lifo_aged], " + serving(", step: 7"));
  ASSERT_EQ(e.cases.size(), 3u);
  EXPECT_TRUE(e.cases[0].params.blocks);
  EXPECT_FALSE(e.cases[1].params.blocks);
  EXPECT_THAT(e.cases[2].id, HasSubstr("lifo_aged"));
  EXPECT_EQ(e.cases[0].params.seqs, e.cases[2].params.seqs);
}

TEST(Served, WrongMappingsAreRefusedWithTheirPlaceAndTheMend) {
  const auto refused = [](const std::string& more) { return error_of("kv: paged, " + serving(more)); };
  EXPECT_THAT(error_of("kv: paged, " + serving("", "mix: sharegtp")), HasSubstr("did you mean 'sharegpt'"));
  EXPECT_THAT(error_of("kv: paged, " + serving("", "steps: 40")), HasSubstr("'mix' or 'trace' is missing"));
  EXPECT_THAT(refused(", step: {spread: 7}"), HasSubstr("even number"));
  EXPECT_THAT(refused(", step: {spread: 42}"), HasSubstr("raise steps or lower spread"));
  EXPECT_THAT(refused(", step: 40"), HasSubstr("the steps 0 to 39"));
  EXPECT_THAT(refused(", step: frist"), HasSubstr("did you mean 'first'"));
  EXPECT_THAT(refused(", step: [1]"), HasSubstr("expected first, p50"));
  EXPECT_THAT(refused(", acceptance: 1.5"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(refused(", free_order: random"), HasSubstr("allowed: lifo, fifo, lowest"));
  EXPECT_THAT(refused(", stepz: 3"), HasSubstr("did you mean 'step"));
  EXPECT_THAT(error_of("kv: paged, batch: {serving: {mix: sharegpt}, count: 3}"),
              HasSubstr("beside 'serving'"));
  EXPECT_THAT(error_of("kv: paged, block_size: 65536, " + serving(", step: 0")),
              HasSubstr("raise cache_tokens"));
}

TEST(Served, CasesThatCannotHaveTheTableAreRefusedByKey) {
  EXPECT_THAT(error_of("kv: paged, page_layout: served, batch: 4q1s16"),
              HasSubstr("batch: {serving: {mix: ...}}"));
  EXPECT_THAT(error_of("kv: paged, kv_dtype: int8, " + serving(", step: 0")), HasSubstr("no int8 keys"));
  EXPECT_THAT(error_of("kv: paged, append: in_call, " + serving(", step: 0")), HasSubstr("drop append"));
  EXPECT_THAT(error_of("kv: paged, path: split_decode, " + serving(", step: 0")), HasSubstr("drop path"));
  // Only the lengths are taken, so both are legal.
  EXPECT_EQ(error_of("kv: paged, page_layout: shuffled, append: in_call, " + serving(", step: 0")),
            "no error");
}

}  // namespace
}  // namespace attnbench
