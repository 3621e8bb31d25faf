// ncu's CSV: a hand-written table in the format of ncu 2025, and the result if parts of it are missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/ncu_csv.h"

namespace attnbench {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::Pair;

/// One launch of two kernels, with units scaled as ncu does by default.
const std::string kTable =
    "==PROF== Connected to process 4711 (/x/attnbench)\n"
    "==PROF== Disconnected from process 4711\n"
    "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"dram__bytes_read.sum\","
    "\"dram__bytes_write.sum\",\"gpu__time_duration.sum\",\"launch__registers_per_thread\","
    "\"lts__t_sector_hit_rate.pct\",\"sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_"
    "active\","
    "\"sm__maximum_warps_per_active_cycle_pct\",\"sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_"
    "sustained_active\","
    "\"sm__pipe_tensor_op_imma_cycles_active.avg.pct_of_peak_sustained_active\","
    "\"sm__warps_active.avg.pct_of_peak_sustained_active\","
    "\"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio\","
    "\"smsp__average_warps_issue_stalled_long_scoreboard_not_issued_per_issue_active.ratio\","
    "\"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio\","
    "\"smsp__average_warps_issue_stalled_selected_per_issue_active.ratio\"\n"
    "\"\",\"\",\"\",\"\",\"\",\"\",\"Mbyte\",\"Kbyte\",\"us\",\"register/"
    "thread\",\"%\",\"%\",\"%\",\"%\",\"%\",\"%\",\"inst\",\"inst\",\"inst\",\"inst\"\n"
    "\"0\",\"4711\",\"void attend<bf16, 128>(Params, \"\"x\"\")\",\"(384, 1, 1)\",\"(132, 1, "
    "1)\",\"0\",\"1,100.5\",\"800\","
    "\"51.2\",\"168\",\"12.5\",\"40\",\"18.75\",\"71.25\",\"0\",\"18.5\",\"1\",\"9\",\"3\",\"1\"\n"
    "\"1\",\"4711\",\"combine\",\"(128, 1, 1)\",\"(64, 1, "
    "1)\",\"0\",\"2\",\"1,000\",\"4.8\",\"32\",\"90\",\"0\",\"100\",\"0\",\"0\",\"50\",\"0\",\"0\",\"0\","
    "\"0\"\n";

TEST(NcuCsv, ReadsLaunchesUnitsAndFigures) {
  const auto launches = parse_ncu_csv(kTable);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].kernel, "void attend<bf16, 128>(Params, \"x\")");
  EXPECT_EQ(launches[0].words.at("Grid Size"), "(132, 1, 1)");
  const NcuFigures f = ncu_figures(launches[0]);
  EXPECT_NEAR(*f.duration_us, 51.2, 1e-9);
  EXPECT_NEAR(*f.dram_read_bytes, 1100.5e6, 1);
  EXPECT_NEAR(*f.dram_written_bytes, 800e3, 1e-3);
  EXPECT_EQ(*f.tensor_percent, 71.25);  // cycles rather than instructions; the busiest part
  EXPECT_EQ(*f.occupancy_percent, 18.5);
  EXPECT_EQ(*f.occupancy_limit_percent, 18.75);
  EXPECT_EQ(*f.l2_hit_percent, 12.5);
  EXPECT_EQ(*f.registers, 168);
  EXPECT_THAT(f.stalls, testing::ElementsAre(Pair("long_scoreboard", 75.0), Pair("barrier", 25.0)));
}

TEST(NcuCsv, SummaryHoldsTrafficAgainstTheModel) {
  // For two launches of the case, each has half of the measured bytes.
  const std::string text = ncu_summary(parse_ncu_csv(kTable), 500e6, 2);
  EXPECT_THAT(text, HasSubstr("1.101 GB read, 800.0 KB written"));
  EXPECT_THAT(text, HasSubstr("tensor pipe  71.2 % busy; occupancy 18.5 % of 18.8 %; L2 hits 12.5 %"));
  EXPECT_THAT(text, HasSubstr("stalls       long_scoreboard 75 %, barrier 25 %"));
  EXPECT_THAT(text, HasSubstr("a launch: 28.00 us, 552.1 MB of DRAM traffic, 1.10 times the least that the "
                              "model says (500.0 MB)\nncu emptied the caches of data and left the code"));
}

TEST(NcuCsv, ANameInAnUnnamedNamespaceIsWhole) {
  const auto launches =
      parse_ncu_csv("\"ID\",\"Kernel Name\"\n\"0\",\"unnamed>::attend(AttentionParams)\"\n");
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].kernel, "attend(AttentionParams)");
}

TEST(NcuCsv, WhatIsMissingIsADash) {
  const auto launches = parse_ncu_csv("ID,Kernel Name,gpu__time_duration.sum\n,,nsecond\n0,k,1500\n");
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_NEAR(*ncu_figures(launches[0]).duration_us, 1.5, 1e-9);
  const std::string text = ncu_summary(launches, 100, 1);
  EXPECT_THAT(text, HasSubstr("DRAM         - read, - written"));
  EXPECT_THAT(text, HasSubstr("a launch: 1.500 us\n"));
  EXPECT_THAT(text, Not(HasSubstr("model")));
  EXPECT_TRUE(parse_ncu_csv("ID,Kernel Name\n,\n").empty());
}

TEST(NcuCsv, SaysWhatIsNoTable) {
  EXPECT_THROW(parse_ncu_csv(""), std::runtime_error);
  EXPECT_THROW(parse_ncu_csv("==ERROR== no such file\n"), std::runtime_error);
  EXPECT_THROW(parse_ncu_csv("\"ID\",\"Name\"\n\"0\",\"k\"\n"), std::runtime_error);
  EXPECT_THROW(parse_ncu_csv("ID,Kernel Name,m\n,,\n0,k\n"), std::runtime_error);
}

}  // namespace
}  // namespace attnbench
