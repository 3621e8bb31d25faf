#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "harness/report/csv.h"
#include "harness/report/junit.h"
#include "harness/report/markdown.h"
#include "harness/results/text.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using test::kHostile;
using test::kNan;
using test::make_context;
using test::not_passing;
using test::passing;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// One record per status, one of them with hostile strings everywhere.
std::vector<Record> all_kinds() {
  std::vector<Record> records = {passing("good"),
                                 not_passing("wrong", Status::kFail, "max|z| 40 at seq 3"),
                                 not_passing("skipped", Status::kSkip, "head_dim 72 not in {64, 128}"),
                                 not_passing("crashed", Status::kError, "illegal address"),
                                 not_passing("hung", Status::kTimeout, "60 s"),
                                 not_passing("fast", Status::kInvalidTime, "below the floor")};
  Record hostile = not_passing(kHostile, Status::kFail, kHostile);
  hostile.kernel = hostile.repro = hostile.item.sweep = kHostile;
  records.push_back(hostile);
  return records;
}

/// Reads RFC 4180 with "\n": rows of fields.
std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::string& field = rows.back().back();
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else if (c == '"') {
        quoted = false;
      } else {
        field += c;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      rows.back().push_back("");
    } else if (c == '\n') {
      rows.push_back({""});
    } else {
      field += c;
    }
  }
  rows.pop_back();  // the text ends with a line break
  return rows;
}

TEST(ReportCsv, ReadsBackWithEveryFieldInItsColumn) {
  std::vector<Record> records = all_kinds();
  records[0].check->max_abs = kNan;
  std::ostringstream out;
  write_csv(out, records);
  const auto rows = read_csv(out.str());
  ASSERT_EQ(rows.size(), records.size() + 1);
  for (const auto& row : rows) ASSERT_EQ(row.size(), rows[0].size());
  std::map<std::string, std::size_t> at;
  for (std::size_t i = 0; i < rows[0].size(); ++i) at[rows[0][i]] = i;
  EXPECT_EQ(at.size(), rows[0].size()) << "a name occurs twice";
  EXPECT_EQ(rows[0][0], "name");
  EXPECT_EQ(rows[1][at.at("name")], "good/cuda_simt");
  EXPECT_EQ(rows[1][at.at("median_us")], exact(100));
  EXPECT_EQ(std::stod(rows[1][at.at("tflops")]), 412.345);
  EXPECT_EQ(rows[1][at.at("max_abs")], "") << "NaN is unknown";
  EXPECT_EQ(rows[1][at.at("total_k")], "4096");
  EXPECT_EQ(rows[1][at.at("cache")], "cold");
  EXPECT_EQ(rows[3][at.at("reason")], "head_dim 72 not in {64, 128}");
  EXPECT_EQ(rows[3][at.at("median_us")], "");
  EXPECT_EQ(rows[7][at.at("reason")], printable(kHostile));
}

/// Throws unless `xml` is one well-formed element tree, as far as this project's writer could break it.
/// Returns the number of each element.
std::map<std::string, int> check_xml(const std::string& xml) {
  const auto fail = [&](std::size_t at, const std::string& what) {
    throw std::runtime_error(what + " at: " + xml.substr(at, 60));
  };
  const auto check_text = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto c = static_cast<unsigned char>(xml[i]);
      if (c < 0x20 && c != '\n') fail(i, "control character");
      if (c == '<' || c == '>') fail(i, "bare angle");
      if (c != '&') continue;
      const std::string entity = xml.substr(i, xml.find(';', i) - i + 1);
      static const std::vector<std::string> known = {"&amp;",  "&lt;", "&gt;",  "&quot;",
                                                     "&apos;", "&#9;", "&#10;", "&#13;"};
      if (std::find(known.begin(), known.end(), entity) == known.end()) fail(i, "bad entity");
    }
  };
  if (valid_utf8(xml) != xml) fail(0, "not UTF-8");
  std::map<std::string, int> counts;
  std::vector<std::string> open;
  std::size_t i = xml.find("?>") + 2;
  while (i < xml.size()) {
    const std::size_t lt = std::min(xml.find('<', i), xml.size());
    check_text(i, lt);
    if (lt == xml.size()) break;
    i = lt + 1;
    if (xml[i] == '/') {
      const std::size_t gt = xml.find('>', i);
      if (open.empty() || xml.substr(i + 1, gt - i - 1) != open.back()) fail(i, "wrong end tag");
      open.pop_back();
      i = gt + 1;
      continue;
    }
    const std::size_t name_end = xml.find_first_of(" />", i);
    const std::string name = xml.substr(i, name_end - i);
    if (open.empty() && !counts.empty()) fail(i, "second root");
    ++counts[name];
    i = name_end;
    while (xml[i] == ' ') {
      const std::size_t value = xml.find("=\"", i) + 2;
      const std::size_t end = xml.find('"', value);
      check_text(value, end);
      i = end + 1;
    }
    if (xml[i] == '/') {
      ++i;
    } else {
      open.push_back(name);
    }
    if (xml[i] != '>') fail(i, "tag not closed");
    ++i;
  }
  if (!open.empty()) fail(0, "element left open: " + open.back());
  return counts;
}

TEST(ReportJunit, IsWellFormedAndCounts) {
  const std::vector<Record> records = all_kinds();
  std::ostringstream out;
  RunContext context = make_context();
  context.name = context.host = kHostile;
  write_junit(out, context, records);
  auto counts = check_xml(out.str());
  EXPECT_EQ(counts["testsuites"], 1);
  EXPECT_EQ(counts["testsuite"], 2) << "one per sweep";
  EXPECT_EQ(counts["testcase"], 7);
  EXPECT_EQ(counts["failure"], 3);
  EXPECT_EQ(counts["error"], 2);
  EXPECT_EQ(counts["skipped"], 1);
  EXPECT_THAT(out.str(), HasSubstr("tests=\"7\" failures=\"3\" errors=\"2\" skipped=\"1\""));
  EXPECT_THAT(out.str(), HasSubstr("timestamp=\"2025-01-31T09:05:00\""));
  EXPECT_THAT(out.str(),
              HasSubstr("classname=\"attnbench.decode.cuda_simt\" name=\"good/cuda_simt\" time=\""));
  EXPECT_THAT(out.str(), HasSubstr("reproduce: attnbench run --case x"));
}

TEST(ReportFailures, NameTheirDetectorsInMarkdownAndJUnit) {
  Record r = passing("f");
  r.status = Status::kFail;
  r.reason = "wrong when timed";
  r.check->pass = false;
  r.check->failed_by = {"kept_results"};
  std::ostringstream junit, markdown;
  write_junit(junit, make_context(), {{r}});
  check_xml(junit.str());
  EXPECT_THAT(junit.str(), HasSubstr("message=\"wrong when timed [kept_results]\""));
  write_markdown(markdown, make_context(), {{r}});
  EXPECT_THAT(markdown.str(), HasSubstr(": wrong when timed \\[kept\\_results\\]\n"));
  EXPECT_THAT(markdown.str(), HasSubstr("| 3.25^ |"));
  EXPECT_THAT(markdown.str(),
              HasSubstr("\n^ this max\\|z\\| is of the verified launch and within its limit"));
}

TEST(ReportFailures, OneOfEachKindStandsFirstInMarkdownAndJUnit) {
  std::vector<Record> records;
  for (const char* id : {"a1", "a2", "b1"}) {
    records.push_back(not_passing(id, Status::kFail, "wrong"));
    records.back().check.emplace().clues = {std::string("looks like: ") + id[0] +
                                            " (all 4 wrong rows tried)"};
  }
  std::ostringstream junit, markdown;
  write_junit(junit, make_context(), records);
  write_markdown(markdown, make_context(), records);
  for (const std::string& text :
       {junit.str(), markdown.str().substr(markdown.str().find("### To look at"))}) {
    EXPECT_LT(text.find("a1/cuda"), text.find("2 failures are of this kind: here is the one of least work"));
    EXPECT_LT(text.find("2 failures are of this kind"), text.find("b1/cuda"));
    EXPECT_LT(text.find("b1/cuda"), text.find("a2/cuda"));
  }
}

TEST(ReportMarkdown, WhatFailuresHaveInCommonStandsAtItsHead) {
  std::vector<Record> records(2, not_passing("f", Status::kFail, "wrong"));
  for (Record& r : records)
    r.check.emplace().clues = {"looks like: a (all 4 wrong rows tried match this mistake)"};
  std::ostringstream out;
  write_markdown(out, make_context(), records);
  const std::string head = out.str().substr(0, out.str().find("| status |"));
  EXPECT_THAT(head, HasSubstr("\n- cuda\\_simt: 2 of 2 wrong cases look like: a\n"));
}

TEST(ReportJunit, TheCheckerItselfSeesFaults) {
  for (const char* bad : {"<?xml?><a>&</a>", "<?xml?><a><b></a></b>", "<?xml?><a>\x01</a>",
                          "<?xml?><a b=\"<\"/>", "<?xml?><a>", "<?xml?><a/><a/>", "<?xml?><a>\xff</a>"}) {
    EXPECT_THROW(check_xml(bad), std::runtime_error) << bad;
  }
}

/// "x" declares its types, passes a case and refuses another.
std::vector<Record> half_covered() {
  Record declared = passing("a", "x");
  declared.check->declared = Declared{{DType::kBf16, DType::kFp32, 0}};
  Record skipped = not_passing("b", Status::kSkip, "no");
  skipped.kernel = "x";
  return {declared, skipped};
}

TEST(ReportJunit, CoverageAndTypesAreProperties) {
  std::ostringstream out;
  write_junit(out, make_context(), half_covered());
  EXPECT_EQ(check_xml(out.str())["property"], 2);
  EXPECT_THAT(out.str(), HasSubstr("<property name=\"x: cases run\" value=\"1 of 2\"/>"));
  EXPECT_THAT(out.str(), HasSubstr("<property name=\"x: declared types\" value=\"acc fp32, p bf16\"/>"));
}

TEST(ReportMarkdown, CoverageAndTypesStandBesideTheCounts) {
  std::ostringstream out;
  write_markdown(out, make_context(), half_covered());
  EXPECT_THAT(out.str(),
              AllOf(HasSubstr("\n- x: 1 of 2 cases run (50.0 %), declares acc fp32, p bf16\n"),
                    HasSubstr("\nThe passed cases would have shown: softmax\\_scale off by 0.0002 %")));
}

TEST(ReportJunit, NoRecords) {
  std::ostringstream out;
  write_junit(out, make_context(), {});
  EXPECT_EQ(check_xml(out.str())["testsuites"], 1);
}

/// The number of cells that GitHub sees: a pipe splits unless a backslash comes before it.
int cells(const std::string& line) {
  int bars = 0;
  for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
  return bars - 1;
}

TEST(ReportCsv, CountersHaveTheirColumns) {
  Record counted = passing("c");
  counted.counters = {1.5e8, 1e8, 37.5, std::nullopt, 2, ""};
  Record refused = passing("r");
  refused.counters.emplace().reason = "no, \"never\"";
  std::ostringstream out;
  write_csv(out, std::vector{counted, refused, passing("p")});
  const auto rows = read_csv(out.str());
  const auto at = [&](std::size_t row, const std::string& name) {
    const auto it = std::find(rows[0].begin(), rows[0].end(), name);
    return it == rows[0].end() ? "no column" : rows[row][static_cast<std::size_t>(it - rows[0].begin())];
  };
  EXPECT_EQ(std::stod(at(1, "dram_read_bytes")), 1.5e8);
  EXPECT_EQ(std::stod(at(1, "dram_write_bytes")), 1e8);
  EXPECT_EQ(std::stod(at(1, "dram_over_model")), 1.25);
  EXPECT_EQ(at(1, "tensor_active_percent"), "37.5");
  EXPECT_EQ(at(1, "l2_hit_percent"), "") << "unknown";
  EXPECT_EQ(at(1, "counters_reason"), "");
  EXPECT_EQ(at(2, "counters_reason"), "no, \"never\"");
  EXPECT_EQ(at(2, "dram_over_model"), "");
  EXPECT_EQ(at(3, "dram_read_bytes") + at(3, "counters_reason"), "") << "not asked for";
  EXPECT_EQ(at(3, "copies"), std::to_string(passing("p").time->copies));
}

TEST(ReportMarkdown, TimesHaveTheirIntervalsAndTheMarksOfTheConsole) {
  Record vague = passing("a"), busy = passing("b");
  vague.time->hi_us = 150;
  busy.time->disturbed = 4;
  const auto written = [](const std::vector<Record>& records) {
    std::ostringstream out;
    write_markdown(out, make_context(), records);
    return out.str();
  };
  EXPECT_THAT(written({passing("c")}),
              AllOf(HasSubstr("| time ± % | TFLOP/s |"), HasSubstr("| 100.0 us ± 1.0% |"),
                    Not(HasSubstr("usable")), Not(HasSubstr("cores"))));
  EXPECT_THAT(written({vague, busy}),
              AllOf(HasSubstr("| 100.0 us ± 50%? |"), HasSubstr("| 100.0 us! ± 1.0% |"),
                    HasSubstr("\n? +/- 50 % or more: not usable"), HasSubstr("\n! other processes")));
  Record slow = passing("d");
  slow.device = "cpu";
  slow.time->median_us = 119604;
  EXPECT_THAT(written({slow}), AllOf(HasSubstr("| time ± % | GFLOP/s |"), HasSubstr("| 119.6 ms ±")));
  std::ostringstream junit;
  write_junit(junit, make_context(), {{slow}});
  EXPECT_THAT(junit.str(), AllOf(HasSubstr("<system-out>119.6 ms ("), HasSubstr(" GFLOP/s, ")));
}

TEST(ReportMarkdown, CeilingsOfABusyMachineAreMarked) {
  const auto written = [](bool disturbed) {
    RunContext context = make_context();
    context.ceilings.disturbed = disturbed;
    std::ostringstream out;
    write_markdown(out, context, all_kinds());
    return out.str();
  };
  EXPECT_THAT(written(true), AllOf(HasSubstr("\\* | memory\\* |"),
                                   HasSubstr("\n\\* the ceilings were measured on a busy machine")));
  EXPECT_THAT(written(false), AllOf(HasSubstr("| memory |"), Not(HasSubstr("busy machine"))));
}

TEST(ReportMarkdown, CountersHaveCellsInEveryRow) {
  std::vector<Record> records = all_kinds();
  records[0].counters = {1.5e8, 1e8, 37.5, std::nullopt, 2, ""};
  std::ostringstream out;
  write_markdown(out, make_context(), records);
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] != '|') continue;
    EXPECT_EQ(cells(line), 13) << line;
  }
  EXPECT_THAT(out.str(), HasSubstr("| 512/4096 | 1.25 | 37.5 | - |"));
}

TEST(ReportMarkdown, EveryRowHasAllCellsWhateverTheText) {
  const std::vector<Record> records = all_kinds();
  std::ostringstream out;
  write_markdown(out, make_context(), records);
  std::istringstream in(out.str());
  int rows = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] != '|') continue;
    EXPECT_EQ(cells(line), 10) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 2 + 7);
  EXPECT_EQ(valid_utf8(out.str()), out.str());
  EXPECT_THAT(out.str(),
              HasSubstr("**1 passed, 2 failed, 1 skipped, 2 errors (1 timeout), 1 invalid time**"));
  EXPECT_THAT(out.str(), HasSubstr("| 100.0 us ± 1.0% | 412.3 | 2012 | 64.30 | memory | 3.25 | 512/4096 |"));
  EXPECT_THAT(out.str(), HasSubstr("**fail** `wrong/cuda_simt`: max\\|z\\| 40 at seq 3"));
  EXPECT_THAT(out.str(), HasSubstr("```sh\nattnbench run --case x\n```"));
  EXPECT_THAT(out.str(), Not(HasSubstr("<d>\n")));
  EXPECT_EQ(markdown_text("<b>&*x*"), "&lt;b>&amp;\\*x\\*");
}

}  // namespace
}  // namespace attnbench
