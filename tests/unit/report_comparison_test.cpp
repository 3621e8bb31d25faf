// A comparison as table, Markdown, JSON, JUnit and GitHub annotations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/report/compare_formats.h"
#include "harness/report/compare_print.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using test::kHostile;
using test::sampled;
using test::set_of;
using test::with_status;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ReportComparison, CasesThatNobodyTimedHaveNoRow) {
  const auto texts = [](const ResultSet& base, const ResultSet& fresh) {
    const CompareResult r = compare_results(base, fresh, {});
    std::ostringstream text, markdown;
    print_compare(text, r, {});
    write_compare_markdown(markdown, r);
    return std::pair{text.str(), markdown.str()};
  };
  const Record a = with_status("a", Status::kPass), b = with_status("b", Status::kPass);
  const auto [text, markdown] = texts(set_of({a, b}), set_of({a, b}));
  EXPECT_EQ(text,
            "0 slower, 0 inconclusive, 0 same, 0 faster, 2 not compared\n2 cases that neither side timed "
            "have no row\n");
  EXPECT_THAT(markdown, testing::EndsWith("**\n\n2 cases that neither side timed have no row\n\n"));
  const auto [some, table] = texts(set_of({a, b}), set_of({with_status("a", Status::kFail), b}));
  EXPECT_THAT(
      some, AllOf(HasSubstr("incorrect  a     k"), HasSubstr("1 case that neither side timed has no row\n")));
  EXPECT_THAT(table, AllOf(HasSubstr("| incorrect | `a` |"), Not(HasSubstr("`b`"))));
}

TEST(ReportComparison, LongTimesAreInMillisecondsInAnnotationsAndJunit) {
  const CompareResult r = compare_results(set_of({sampled("a", 100000, 1e-6, 30, 1)}),
                                          set_of({sampled("a", 200000, 1e-6, 30, 2)}), {});
  std::ostringstream junit, github;
  write_compare_junit(junit, r, {});
  write_compare_github(github, r, {});
  for (const std::string& text : {junit.str(), github.str()})
    EXPECT_THAT(text, HasSubstr("slower: 200.0 ms against 100.0 ms"));
}

TEST(ReportComparison, TheCluesOfAWrongResultAreEverywhere) {
  Record wrong = with_status("a", Status::kFail);
  wrong.check.emplace().clues = {"4 of 8 rows looked at are wrong", "looks like: no mask"};
  const CompareResult r = compare_results(set_of({with_status("a", Status::kPass)}), set_of({wrong}), {});
  std::ostringstream text, markdown, json, junit, github;
  print_compare(text, r, {});
  write_compare_markdown(markdown, r);
  write_compare_json(json, r, {});
  write_compare_junit(junit, r, {});
  write_compare_github(github, r, {});
  EXPECT_THAT(text.str(), HasSubstr("\n  4 of 8 rows looked at are wrong\n  looks like: no mask\n"));
  EXPECT_THAT(markdown.str(), HasSubstr("<br>looks like: no mask |"));
  EXPECT_EQ(nlohmann::json::parse(json.str())["rows"][0]["clues"][1], "looks like: no mask");
  EXPECT_THAT(junit.str(), HasSubstr("\nlooks like: no mask\nreproduce: "));
  EXPECT_THAT(github.str(), HasSubstr("%0Alooks like: no mask"));
}

TEST(ReportComparison, ADirectionIsNamedOnlyWhereSomethingWasDecided) {
  CompareResult r;
  r.geomean = 0.5;
  r.compared = 1;
  r.counts[Change::kInconclusive] = 1;
  EXPECT_THAT(compare_summary(r), testing::Not(HasSubstr("as fast")));
  r.counts[Change::kFaster] = 1;
  EXPECT_THAT(compare_summary(r), HasSubstr("new is 2.00 times as fast"));
}

TEST(ReportComparison, Tables) {
  const ResultSet base = set_of({sampled("a|b", 100, 0.001, 30, 1), sampled("crash", 10, 0.01, 30, 1)});
  const ResultSet fresh = set_of({sampled("a|b", 110, 0.001, 30, 2), with_status("crash", Status::kError)});
  const CompareResult r = compare_results(base, fresh, {});
  std::ostringstream text, markdown;
  print_compare(text, r, {});
  EXPECT_THAT(text.str(), HasSubstr("verdict  case   kernel      base       new  change %"));
  EXPECT_THAT(text.str(), HasSubstr("slower   a|b    k"));
  EXPECT_THAT(
      text.str(),
      HasSubstr("1 error, 1 slower, 0 inconclusive, 0 same, 0 faster; geometric mean of new / base 1.1"));
  EXPECT_THAT(text.str(), HasSubstr("\nerror crash, k\n  NEW: error: because\n"));
  std::ostringstream told;
  print_compare(told, r, {}, {"crash/k"});
  EXPECT_THAT(told.str(), AllOf(HasSubstr("error    crash"), Not(HasSubstr("\nerror crash, k\n"))));
  write_compare_markdown(markdown, r);
  EXPECT_THAT(markdown.str(), HasSubstr("| slower | `a\\|b` | `k` |"));
}

TEST(ReportComparison, AChangeIsNotThatOfTheMedians) {
  CompareResult r;
  CompareRow row;
  row.id = "a";
  row.change = Change::kSame;
  row.base_us = 100;
  row.new_us = 101;
  row.ratio = 0.998;
  r.rows = {row};
  const auto texts = [&] {
    std::ostringstream text, markdown;
    print_compare(text, r, {});
    write_compare_markdown(markdown, r);
    return std::pair{text.str(), markdown.str()};
  };
  EXPECT_THAT(texts().first,
              AllOf(HasSubstr("-0.20#"),
                    HasSubstr("\nbase and new are medians; change compares midmeans, the means of "
                              "the middle half"),
                    HasSubstr("; #: the medians changed in the other direction\n")));
  EXPECT_THAT(texts().second, AllOf(HasSubstr("-0.20"), HasSubstr("in the other direction")));
  for (const double alike : {1.01, 1.0, 1.000001}) {
    r.rows[0].ratio = alike;
    EXPECT_THAT(texts().first, AllOf(Not(HasSubstr("#")), HasSubstr("midmeans"))) << alike;
  }
  r.rows[0].ratio.reset();
  EXPECT_THAT(texts().first, Not(HasSubstr("midmeans")));
}

TEST(ReportComparison, RunsThatAreLeftOutAreSaid) {
  CompareResult r;
  r.rows.resize(3);
  std::ostringstream none;
  print_compare(none, r, {});
  EXPECT_THAT(none.str(), Not(HasSubstr("left out")));
  r.rows[0].left_out.base = 1;
  r.rows[2].left_out.base = 5;
  r.rows[2].left_out.fresh = 2;
  std::ostringstream text, markdown;
  print_compare(text, r, {});
  write_compare_markdown(markdown, r);
  const std::string line =
      "left out in 2 cases: up to 5 runs of base and 2 of new, in which threads waited for each other";
  EXPECT_THAT(text.str(), HasSubstr("\n" + line));
  EXPECT_THAT(markdown.str(), HasSubstr("\n" + line));
}

TEST(ReportComparison, OneRunASideIsSaidBesideADecision) {
  const auto tables = [](const CompareResult& r) {
    std::ostringstream text, markdown;
    print_compare(text, r, {});
    write_compare_markdown(markdown, r);
    return std::vector{text.str(), markdown.str()};
  };
  const auto said = testing::Each(HasSubstr("1 verdict rests on one run a side"));
  const auto not_said = testing::Each(Not(HasSubstr("on one run a side")));
  const auto compared = [](double us) {
    return compare_results(set_of({sampled("a", 100, 1e-3, 30, 1)}), set_of({sampled("a", us, 1e-3, 30, 2)}),
                           {});
  };
  EXPECT_THAT(tables(compared(150)), said);
  EXPECT_THAT(tables(compared(100)), not_said);
  CompareResult more_runs = compared(150);
  more_runs.rows[0].evidence->new_runs = 2;
  EXPECT_THAT(tables(more_runs), not_said);
  CompareResult calibrated = compared(150);
  calibrated.rows[0].evidence->noise = {.sigma = 0.01, .runs = 5};
  EXPECT_THAT(tables(calibrated), not_said);
}

TEST(ReportComparison, SidesWithoutACommonCaseAreSaid) {
  const auto text_of = [](const ResultSet& base, const ResultSet& fresh) {
    std::ostringstream text;
    print_compare(text, compare_results(base, fresh, {}), {});
    return text.str();
  };
  const Record a = with_status("a", Status::kPass), b = with_status("b", Status::kPass);
  EXPECT_THAT(text_of(set_of({a}), set_of({b})), HasSubstr("no case is on both sides"));
  Record other = a;
  other.kernel = "other";
  EXPECT_THAT(text_of(set_of({a}), set_of({other})), HasSubstr("--match case compares different kernels"));
  EXPECT_THAT(text_of(set_of({a, b}), set_of({b})), Not(HasSubstr("no case is on both sides")));
  EXPECT_THAT(text_of(set_of({a}), set_of({})), Not(HasSubstr("no case is on both sides")));
}

TEST(ReportComparison, CasesOfOneSideAloneAreCountedBySweep) {
  const auto missing = [](int cases, int other) {
    std::vector<Record> base = {sampled("both", 100, 0.002, 40, 1)};
    for (int i = 0; i < cases + other; ++i) {
      base.push_back(sampled("c" + std::to_string(i), 100, 0.002, 40, 2));
      base.back().item.sweep = i < cases ? "decode" : "append";
    }
    const CompareResult r = compare_results(set_of(base), set_of({sampled("both", 100, 0.002, 40, 3)}), {});
    std::ostringstream text, markdown;
    print_compare(text, r, {});
    write_compare_markdown(markdown, r);
    return std::pair{text.str(), markdown.str()};
  };
  const auto [few, few_markdown] = missing(10, 0);
  EXPECT_THAT(few, AllOf(HasSubstr("missing in new  c9 "), Not(HasSubstr(" more"))));
  EXPECT_THAT(few_markdown, AllOf(HasSubstr("`c9`"), Not(HasSubstr(" more"))));
  const auto [text, markdown] = missing(20, 4);
  for (const std::string& shown : {text, markdown}) {
    EXPECT_THAT(shown, AllOf(HasSubstr("missing in new: 17 cases more of sweep decode\n"),
                             HasSubstr("missing in new: 1 case more of sweep append\n"),
                             HasSubstr("24 missing in new")));
    EXPECT_THAT(shown, AllOf(HasSubstr("c2"), Not(HasSubstr("c3")), HasSubstr("c22"), Not(HasSubstr("c23"))));
  }
}

TEST(ReportComparison, AnIntervalThatSaysNothingIsInWords) {
  EXPECT_EQ(interval_text(1.041, 1.059), "+4.10 .. +5.90");
  EXPECT_EQ(interval_text(20, 21), "+1900.00 .. +2000.00");
  EXPECT_EQ(interval_text(0.0008, 3889.95), "over 10x wide");
  EXPECT_EQ(interval_text(1.041, 3889.95), "> +4.10");
  EXPECT_EQ(interval_text(0.0008, 0.9), "< -10.00");
}

TEST(ReportComparison, WhereNothingWasToBeTimedTheSummaryCountsRightAndWrong) {
  const Record a = with_status("a", Status::kPass), b = with_status("b", Status::kPass);
  CompareResult r = compare_results(set_of({a, b}), set_of({with_status("a", Status::kFail), b}), {});
  r.verdicts_only = true;
  EXPECT_EQ(compare_summary(r), "1 right on both sides, 1 incorrect");
  std::ostringstream text;
  print_compare(text, r, {});
  EXPECT_THAT(text.str(), Not(HasSubstr("timed")));
}

CompareResult two_sweeps() {
  const auto in = [](const char* sweep, Record r) {
    r.item.sweep = sweep;
    return r;
  };
  return compare_results(
      set_of({in("x", sampled("a", 100, 0.002, 40, 1)), in("x", sampled("b", 100, 0.002, 40, 2)),
              in("y", sampled(kHostile, 100, 0.002, 40, 3)), in("y", sampled("gone", 100, 0.002, 40, 4))}),
      set_of({in("x", sampled("a", 110, 0.002, 40, 5)), in("x", sampled("b", 121, 0.002, 40, 6)),
              in("y", sampled(kHostile, 80, 0.002, 40, 7))}),
      {});
}

TEST(ReportComparison, GeometricMeanBySweep) {
  const CompareResult r = two_sweeps();
  ASSERT_EQ(r.sweeps.size(), 2u);
  for (const SweepMean& s : r.sweeps) {
    EXPECT_NEAR(s.geomean, s.sweep == "x" ? std::sqrt(1.1 * 1.21) : 0.8, 0.005) << s.sweep;
    EXPECT_EQ(s.compared, s.sweep == "x" ? 2 : 1);
  }
  EXPECT_THAT(sweep_means(r), AllOf(HasSubstr("x 1.15"), HasSubstr("(2)"), HasSubstr("y 0.")));
}

TEST(ReportComparison, Json) {
  std::ostringstream out;
  write_compare_json(out, two_sweeps(), {});
  const auto j = nlohmann::json::parse(out.str());
  EXPECT_EQ(j["exit_code"], 1);
  EXPECT_EQ(j["counts"]["slower"], 2);
  EXPECT_EQ(j["rows"].size(), 4u);
  EXPECT_EQ(j["rows"][0]["verdict"], "missing in new");
  EXPECT_TRUE(j["rows"][0]["ratio"].is_null());
  EXPECT_NEAR(j["rows"][1]["ratio"].get<double>(), 1.21, 0.01);
}

TEST(ReportComparison, Junit) {
  std::ostringstream out;
  write_compare_junit(out, two_sweeps(), {});
  EXPECT_THAT(out.str(), AllOf(HasSubstr("tests=\"4\" failures=\"3\" errors=\"0\" skipped=\"0\""),
                               HasSubstr("<testsuite name=\"x\" tests=\"2\" failures=\"2\""),
                               HasSubstr("type=\"slower\""), HasSubstr("type=\"missing in new\""),
                               Not(HasSubstr("<d>")), Not(HasSubstr("\x1b"))));
}

TEST(ReportComparison, AnInterruptedGateIsMarkedInEveryFormat) {
  CompareResult same = compare_results(set_of({sampled("a", 100, 0.001, 30, 1)}),
                                       set_of({sampled("a", 100, 0.001, 30, 2)}), {});
  ASSERT_EQ(compare_exit_code(same, {}), 0);
  const auto formats = [&] {
    std::ostringstream text, markdown, json, junit, github;
    print_compare(text, same, {});
    write_compare_markdown(markdown, same);
    write_compare_json(json, same, {});
    write_compare_junit(junit, same, {});
    write_compare_github(github, same, {});
    return std::array{text.str(), markdown.str(), json.str(), junit.str(), github.str()};
  };
  same.stopped = "it is late";
  for (std::size_t i = 0; const std::string& text : formats()) {
    if (i++ == 3) continue;  // JUnit has no place for it
    EXPECT_THAT(text, HasSubstr("it is late"));
  }
  EXPECT_EQ(nlohmann::json::parse(formats()[2])["exit_code"], 0);
  EXPECT_THAT(formats()[4], Not(HasSubstr("::error")));
  same.interrupted = true;
  for (const std::string& text : formats()) EXPECT_THAT(text, HasSubstr("it is late"));
  const auto json = nlohmann::json::parse(formats()[2]);
  EXPECT_EQ(json["exit_code"], 130);
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_EQ(json["rows"][0]["verdict"], "same");
  EXPECT_THAT(formats()[3],
              AllOf(HasSubstr("<testsuites name=\"attnbench compare\" tests=\"2\" failures=\"0\" "
                              "errors=\"1\""),
                    HasSubstr("<error message=\"it is late\" type=\"interrupted\"/>")));
  EXPECT_THAT(formats()[4], HasSubstr("::error title=attnbench::it is late\n"));
}

TEST(ReportComparison, GithubCommandsCannotBeEscapedFrom) {
  EXPECT_EQ(github_command("error", "a: b, c%", "x\r\n::error::y, 5 %"),
            "::error title=a%3A b%2C c%25::x%0D%0A::error::y, 5 %25\n");
  std::ostringstream out;
  write_compare_github(out, two_sweeps(), {});
  std::istringstream lines(out.str());
  int errors = 0, count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line.rfind("::", 0), 0u) << line;
    errors += line.rfind("::error ", 0) == 0;
  }
  EXPECT_EQ(errors, 3);
  EXPECT_EQ(count, 4) << "and a notice with the summary";
}

TEST(ReportComparison, GithubShowsTenOfAKindSoTheLastCountsTheRest) {
  std::vector<Record> base, fresh;
  for (int i = 0; i < 13; ++i) {
    base.push_back(sampled("c" + std::to_string(i), 100, 0.002, 40, i));
    fresh.push_back(sampled("c" + std::to_string(i), 120, 0.002, 40, 100 + i));
  }
  std::ostringstream out;
  write_compare_github(out, compare_results(set_of(base), set_of(fresh), {}), {});
  EXPECT_THAT(out.str(), HasSubstr("and 3 more"));
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
}

}  // namespace
}  // namespace attnbench
