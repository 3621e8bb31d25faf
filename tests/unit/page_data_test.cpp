// The page's data: no result is lost or changed, and no text can leave its block.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/html/case_facts.h"
#include "harness/report/html/page.h"
#include "harness/report/html/page_data.h"
#include "harness/report/html/svg_canvas.h"
#include "harness/report/html/svg_plots.h"
#include "harness/results/json.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using nlohmann::ordered_json;
using test::passing;
using testing::HasSubstr;
using testing::Not;

ResultSet set_of(const std::vector<Record>& records) {
  return parse_results(dump_json(results_to_json(test::make_context(), records)), "results.json");
}

Record of_batch(const std::string& id, std::vector<SeqLen> seqs, double us = 100) {
  Record r = passing(id, "k", us);
  r.item.params.seqs = std::move(seqs);
  return r;
}

TEST(CaseFacts, TellPhasesAndLines) {
  const auto facts = [](const std::string& id, std::vector<SeqLen> seqs) {
    return *facts_of(set_of({of_batch(id, std::move(seqs))}).results[0]);
  };
  const CaseFacts decode = facts("attention/paged16/bf16/8q1s1k", std::vector<SeqLen>(8, {1, 1024}));
  EXPECT_EQ(decode.phase, "decode");
  EXPECT_EQ(decode.setting, "attention/paged16/bf16");
  EXPECT_TRUE(decode.uniform);
  EXPECT_EQ(decode.num_seqs, 8);
  EXPECT_EQ(decode.max_k, 1024);
  EXPECT_EQ(facts("a/q16s1k", {{16, 1024}}).phase, "decode");
  EXPECT_EQ(facts("a/q17s1k", {{17, 1024}}).phase, "prefill");
  const CaseFacts step = facts("a/b", [] {
    std::vector<SeqLen> s(64, {1, 1024});
    s.push_back({512, 2048});
    return s;
  }());
  EXPECT_EQ(step.phase, "mixed");
  EXPECT_FALSE(step.uniform);
  EXPECT_EQ(facts("a/16seqs-q9-s9-0badcafe/peaked", std::vector<SeqLen>(16, {17, 17})).setting, "a/peaked");
  Record plain;
  EXPECT_FALSE(facts_of(plain).has_value());
}

TEST(CaseFacts, OnlyAttentionDecodesAndPrefills) {
  for (const Op op : {Op::kKvAppend, Op::kMergeStates}) {
    Record r = of_batch("op/8q1s1k", std::vector<SeqLen>(8, {1, 1024}));
    r.item.params.op = op;
    const ResultSet set = set_of({r});
    EXPECT_EQ(facts_of(set.results[0])->phase, op_name(op));
    EXPECT_EQ(page_data(std::vector{set}, std::nullopt, {})["cases"][0]["phase"], op_name(op));
    for (const auto& [name, text] : svg_plots(std::vector{set})) EXPECT_NE(name, "decode_latency.svg");
  }
}

TEST(PageData, HoldsWhatTheFileHolds) {
  const std::vector<Record> records = {of_batch("one", {{5, 5}}),
                                       of_batch("two", {{7, 7}, {9, 9}}, 123.456789)};
  const ResultSet set = set_of(records);
  const ordered_json data = page_data(std::vector{set}, std::nullopt, {});
  ASSERT_EQ(data["results"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& a = (*set.results[i].entry)["attnbench"];
    const ordered_json& r = data["results"][i];
    const ordered_json& c = data["cases"][r["case"].get<std::size_t>()];
    EXPECT_EQ(c["id"], a["id"].get<std::string>());
    ordered_json params = data["params_default"];
    params.update(c["params"]);
    EXPECT_EQ(nlohmann::json(params), nlohmann::json(a["params"]));
    EXPECT_EQ(c["repro"][0].get<std::string>() + "k" + c["repro"][1].get<std::string>(),
              a["repro"].get<std::string>());
    EXPECT_NEAR(r["time"]["median_us"].get<double>(), a["time"]["median_us"].get<double>(), 1e-3);
    EXPECT_EQ(r["time"]["samples_us"].size(), a["time"]["samples_us"].size());
    EXPECT_NEAR(r["tflops"].get<double>(), a["tflops"].get<double>(), 1e-3);
    EXPECT_EQ(r["check"]["rows_total"], a["check"]["rows_total"].get<int64_t>());
  }
  EXPECT_EQ(data["samples_every"], 1);
}

TEST(PageData, KernelsHaveTheirCoverageAndTypes) {
  Record declared = passing("a", "x");
  declared.check->declared = Declared{{DType::kBf16, DType::kFp32, 0}};
  Record skipped = test::not_passing("b", Status::kSkip, "no sinks");
  skipped.kernel = "x";
  const ResultSet set = set_of({declared, skipped});
  const ordered_json kernels = page_data({&set, 1}, std::nullopt, {})["kernels"];
  EXPECT_EQ(kernels, ordered_json::parse(
                         R"([{"kernel": "x", "asked": 2, "ran": 1, "types": ["acc fp32, p bf16"],
                              "skipped_for": "no sinks"}])"));
}

TEST(PageData, LeavesOutWhatNoPanelShows) {
  Record r = passing("one", "k");
  r.check->invariants = {{"repeat", InvariantResult::Outcome::kHeld, ""}};
  const ordered_json data = page_data(std::vector{set_of({r})}, std::nullopt, {});
  EXPECT_TRUE(data["results"][0]["check"].contains("max_z"));
  EXPECT_FALSE(data["results"][0]["check"].contains("invariants"));
}

TEST(PageData, HoldsWhatTheHardwareCounted) {
  std::vector<Record> records(3, passing("one", "k"));
  records[0].counters = {1.5e8, 1e8, 37.5, std::nullopt, 2, ""};
  records[1].counters.emplace().reason = "CUPTI was not found";
  for (std::size_t i = 0; i < records.size(); ++i) records[i].kernel = "k" + std::to_string(i);
  const ordered_json data = page_data(std::vector{set_of(records)}, std::nullopt, {});
  const ordered_json& c = data["results"][0]["counters"];
  EXPECT_EQ(c["dram_read_bytes"], 1.5e8);
  EXPECT_EQ(c["dram_over_model"], 1.25);
  EXPECT_FALSE(c.contains("l2_hit_percent") || c.contains("reason"));
  EXPECT_EQ(data["results"][1]["counters"]["reason"], "CUPTI was not found");
  EXPECT_FALSE(data["results"][2].contains("counters"));
}

TEST(PageData, ThinsSamplesAndSaysSo) {
  Record r = passing("one", "k");
  r.time->samples_us.assign(100, 5.0);
  PageOptions options;
  options.max_samples = 30;
  const ordered_json data = page_data(std::vector{set_of({r})}, std::nullopt, options);
  EXPECT_EQ(data["samples_every"], 4);
  EXPECT_EQ(data["results"][0]["time"]["samples_us"].size(), 25u);
  EXPECT_EQ(data["results"][0]["time"]["samples"], 100);
}

TEST(PageData, ComparisonIsThatOfCompare) {
  const ResultSet base = set_of({passing("a", "k", 100), passing("b", "k", 100)});
  const std::vector sets = {set_of({passing("a", "k", 150)}),
                            set_of({passing("b", "k", 100), passing("a", "k", 1)})};
  const PageComparison c = compare_with(base, sets, {});
  const ordered_json data = page_data(sets, c, {});
  EXPECT_TRUE(data["comparison"]["mismatches"].empty());
  ASSERT_EQ(data["comparison"]["rows"].size(), 2u);  // the second "a" is omitted
  const ordered_json& worst = data["comparison"]["rows"][0];
  EXPECT_EQ(worst["id"], "a");
  EXPECT_EQ(worst["change"], change_name(c.result.rows[0].change));
  EXPECT_EQ(worst["new_us"], 150);
  EXPECT_EQ(worst["result"], 0);
  EXPECT_EQ(data["comparison"]["rows"][1]["result"], 1);
}

TEST(Page, JsonCannotLeaveItsBlock) {
  const ordered_json hostile = {
      {"a", "</script><!--<script>&amp; \xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa \xff"}};
  const std::string text = json_for_script(hostile);
  for (const char* bad : {"<", ">", "&", "\xe2\x80\xa8", "\xe2\x80\xa9"})
    EXPECT_THAT(text, Not(HasSubstr(bad)));
  EXPECT_EQ(ordered_json::parse(text)["a"],
            "</script><!--<script>&amp; \xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa \xef\xbf\xbd");
}

TEST(Page, IsWholeAndFetchesNothing) {
  if (!page_available()) GTEST_SKIP() << "built without Chart.js";
  const std::string page =
      write_page(page_data(std::vector{set_of({passing("{{script}}", "k")})}, std::nullopt, {}));
  EXPECT_THAT(page, HasSubstr("{{script}}"));  // from the case's name; the template's marks are replaced
  EXPECT_THAT(page, HasSubstr("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
  EXPECT_THAT(page, Not(HasSubstr(" src=")));
  EXPECT_THAT(page, Not(HasSubstr("{{data}}")));
  EXPECT_EQ(page.find(".innerHTML", page.find("make_page")), std::string::npos);
}

TEST(SvgPlots, RatesOfACpuAreInGflops) {
  const auto roofline = [](const char* device) {
    Record r = of_batch("attention/packed/bf16/q64", {{64, 64}});
    r.device = device;
    for (const auto& [name, text] : svg_plots(std::vector{set_of({r})})) {
      if (name == "roofline.svg") return text;
    }
    return std::string("none");
  };
  EXPECT_THAT(roofline("cpu"), testing::AllOf(HasSubstr("GFLOP/s"), Not(HasSubstr("TFLOP/s"))));
  EXPECT_THAT(roofline("cuda:0"), testing::AllOf(HasSubstr("TFLOP/s"), Not(HasSubstr("GFLOP/s"))));
}

TEST(SvgPlots, QueriesOfEightBitsHaveARoofOfTheirOwn) {
  Record r = of_batch("attention/packed/bf16/q64", {{64, 64}});
  const auto roofline = [&r] {
    RunContext context = test::make_context();
    context.ceilings.matmul.push_back({DType::kE4m3, 1560});
    const std::vector<Record> records = {r};
    const ResultSet set = parse_results(dump_json(results_to_json(context, records)), "results.json");
    return svg_plots(std::vector{set}).at(0).second;
  };
  EXPECT_THAT(roofline(), testing::AllOf(HasSubstr("bf16 796"), Not(HasSubstr("e4m3 1560"))));
  r.item.params.q_dtype = DType::kE4m3;
  r.item.params.kv_dtype = KvDType::kE4m3;
  EXPECT_THAT(roofline(), testing::AllOf(HasSubstr("bf16 796"), HasSubstr("e4m3 1560")));
}

TEST(SvgPlots, WaysToSpreadACaseOverGpusHaveLinesWithTheirNames) {
  std::vector<Record> records;
  for (const char* way : {"", "dcp2x1-fused/"}) {
    for (const int keys : {1024, 2048}) {
      Record r =
          of_batch(fmt::format("attention/paged64-nhd/bf16/h64-8/d128/causal/{}q1s{}k", way, keys / 1024),
                   {{1, keys}});
      if (*way != '\0') {
        r.item.params.kv = KvSource::kPaged;
        r.item.params.path = Path::kDcp;
        r.item.params.dcp_combine = Combine::kFused;
      }
      records.push_back(r);
    }
  }
  const auto plots = svg_plots(std::vector{set_of(records)});
  ASSERT_EQ(plots.size(), 2u);
  EXPECT_THAT(plots[1].second, testing::AllOf(HasSubstr("batch 1, h64-8 d128 causal paged64"),
                                              HasSubstr("batch 1, h64-8 d128 causal dcp2x1-fused paged64")));
  const std::vector<Record> apart(records.begin() + 2, records.end());
  const auto alone = svg_plots(std::vector{set_of(apart)});
  ASSERT_EQ(alone.size(), 1u) << "rates of several GPUs are no points under the ceilings of one";
  EXPECT_EQ(alone[0].first, "decode_latency.svg");
}

TEST(Svg, DrawsEveryPointAndTakesTextForText) {
  SvgChart c;
  c.title = "a <b> & \"c\" \x1b\xff";
  c.x = {"x", 1, 100, true, false};
  c.y = {"y", 0, 10, false, false};
  c.series = {{"line", 0, true, 0, {{1, 1}, {10, 5}, {100, 9}}},
              {"roof", kSvgRoof, true, 0, {{1, 9}, {100, 9}}}};
  c.legend = {"k<1>"};
  const std::string svg = write_svg(c);
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr("k&lt;1&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  int circles = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
    ++circles;
  EXPECT_EQ(circles, 4);  // three points and one mark in the legend
}

TEST(Svg, PlotsFollowFromWhatWasTimed) {
  const auto names = [](const std::vector<Record>& records) {
    std::vector<std::string> out;
    for (const auto& [name, text] : svg_plots(std::vector{set_of(records)})) out.push_back(name);
    return out;
  };
  EXPECT_TRUE(names({test::not_passing("a", Status::kFail, "wrong")}).empty());
  EXPECT_EQ(names({of_batch("a/8q1s1k", std::vector<SeqLen>(8, {1, 1024}))}),
            (std::vector<std::string>{"roofline.svg", "decode_latency.svg"}));
  EXPECT_EQ(names({of_batch("a/4q512", std::vector<SeqLen>(4, {512, 512}))}),
            (std::vector<std::string>{"roofline.svg", "rate_by_length.svg"}));
}

}  // namespace
}  // namespace attnbench
