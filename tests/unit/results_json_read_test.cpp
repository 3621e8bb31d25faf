// Records read back from JSON. Nothing that is written may be lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/results/json.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

Json parsed(const Record& r) { return Json::parse(journal_line(r)); }

TEST(JsonRead, WritesTheSameAgain) {
  Record all = test::passing("a");
  all.index = 7;
  all.log = "one\ntwo";
  all.check->worst = {1, 2, 3, 4, 0.1, test::kNan, 1e-300};
  all.check->reason = test::kHostile;
  all.check->failed_by = {"max_z", "bias"};
  all.check->declared = Declared{{DType::kBf16, DType::kFp32, 0}};
  all.check->clues = {"8 of 9 rows looked at are wrong", "looks like: the causal mask is not applied"};
  all.check->invariants = {{"repeat", InvariantResult::Outcome::kHeld, ""},
                           {"alone", InvariantResult::Outcome::kDiffers, "note"}};
  all.time->samples_us.push_back(test::kInf);
  all.time->cache = CacheMode::kHot;
  all.time->graph = all.time->near_floor = true;
  all.time->disturbed = 3;
  all.time->cores_us = 21.5;
  all.time->memory_us = 812;
  all.time->handover_us = 5.25;
  all.time->host_bound = 4;
  all.time->copies = 5;
  all.time->clocks = {3, 1980, 1755.5, 1980, 2619, 651.5, 55, {"hw_thermal", "sw_power_cap"}};
  all.roofline->floor_us = 1.0 / 3;
  all.roofline->limit_us = 0.25;
  all.roofline->executed_flop = 2e12;
  all.stages = {0.125, 2.5, 1.0 / 3};
  all.counters = {4e6, 1e6, 37.5, 1.0 / 3, 2, ""};
  Record untimed = test::not_passing("b", Status::kTimeout, test::kHostile);
  Record unknown = test::passing("c");
  unknown.roofline->sol.reset();
  unknown.roofline->bound.clear();
  Record uncounted = test::passing("d");
  uncounted.counters.emplace().reason = test::kHostile;
  for (const Record& r : {all, untimed, unknown, uncounted}) {
    const Json once = parsed(r);
    EXPECT_EQ(parsed(record_from_json(once, r.item)), once);
  }
}

TEST(JsonRead, DeviceAndCeilings) {
  const RunContext c = test::make_context();
  EXPECT_EQ(device_to_json(device_from_json(device_to_json(c.device))), device_to_json(c.device));
  Ceilings ceilings = c.ceilings;
  ceilings.disturbed = true;
  ceilings.floor_us = 2.5;
  ceilings.note = "n";
  EXPECT_EQ(ceilings_to_json(ceilings_from_json(ceilings_to_json(ceilings))), ceilings_to_json(ceilings));
  EXPECT_EQ(ceilings_from_json(ceilings_to_json(ceilings)).matmul.size(), 1u);
  ceilings.links = {{"all_gather", 2, 8192, 14.5}, {"peer_read", 4, 65536, 3.5}};
  const Ceilings again = ceilings_from_json(ceilings_to_json(ceilings));
  ASSERT_EQ(again.links.size(), 2u);
  EXPECT_EQ(again.links[1].what, "peer_read");
  EXPECT_EQ(again.links[1].ranks, 4);
  EXPECT_EQ(again.links[1].bytes, 65536);
  EXPECT_EQ(again.links[1].us, 3.5);
}

TEST(JsonRead, TimesOfRanks) {
  Record r = test::passing("a");
  r.time->ranks = {{20, 10, 2, 32}, {18, 12, 3, 33}};
  r.time->skew_us = 1.5;
  r.time->alone_us = 9;
  const Json once = parsed(r);
  const Record again = record_from_json(once, r.item);
  EXPECT_EQ(parsed(again), once);
  ASSERT_EQ(again.time->ranks.size(), 2u);
  EXPECT_EQ(again.time->ranks[1].attention_us, 18);
  EXPECT_EQ(again.time->ranks[1].communication_us, 12);
  EXPECT_EQ(again.time->ranks[1].correction_us, 3);
  EXPECT_EQ(again.time->ranks[1].total_us, 33);
  EXPECT_EQ(again.time->skew_us, 1.5);
  EXPECT_EQ(again.time->alone_us, 9);
}

TEST(JsonRead, RefusesWithTheFieldsName) {
  const Record r = test::passing("a");
  const auto says = [&](const Json& j, const char* text) {
    try {
      record_from_json(j, r.item);
      ADD_FAILURE() << "no error for " << text;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(text));
    }
  };
  Json j = parsed(r);
  j["attnbench"]["id"] = "another";
  says(j, "it is of case another");
  j = parsed(r);
  j["attnbench"]["seed"] = uint64_t{99};
  says(j, "seed is 99");
  j = parsed(r);
  j["attnbench"]["status"] = "great";
  says(j, "status 'great' is not one of");
  j = parsed(r);
  j["attnbench"]["time"]["iterations"] = 1e300;
  says(j, "'iterations'");
  j = parsed(r);
  j["attnbench"]["time"]["iterations"] = int64_t{1} << 40;
  says(j, "'iterations'");
  j = parsed(r);
  j["attnbench"]["check"].erase("max_z");
  says(j, "'max_z' is missing");
  says(Json::array(), "'attnbench' is missing");
}

}  // namespace
}  // namespace attnbench
