// The figures of a record that reports show. A figure that is to be shown is a row here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/report/summary.h"
#include "harness/report/table.h"

namespace attnbench {

struct FigureStyle {
  RateUnit rate;
  bool disturbed = false;  ///< the ceilings were measured on a busy machine: %SOL and bound get a mark
  int sol_digits = 3;
};

/// A column of figures in tables for people, behind that of times.
struct FigureColumn {
  TableColumn table;          ///< on the terminal
  std::string markdown;       ///< header in Markdown
  const char* unknown = "-";  ///< what stands in Markdown where the figure is unknown
  bool counter = false;       ///< only of runs that requested the hardware's counters
  std::function<std::string(const Record&, const FigureStyle&)> cell;  ///< empty: unknown
};

std::vector<FigureColumn> figure_columns(const RateUnit& rate);

/// Columns of the record itself in CSV, by their places in an entry's `attnbench` (harness/results/fields.md); the last
/// word of a place is the column's name. The parameters of the case follow them.
inline constexpr char kCsvColumns[] =
    "name id sweep kernel device seed status reason time/median_us time/lo_us time/hi_us time/samples "
    "tflops gbs sol bound flop bytes formula time/cache time/graph time/plan_us time/host_bound "
    "check/check check/rows check/rows_total check/max_z check/max_row_z2 check/bias_se check/slope "
    "check/max_abs check/max_rel check/lse_max_z repro check/probs_max_z executed_flop "
    "counters/dram_read_bytes counters/dram_write_bytes counters/dram_over_model "
    "counters/tensor_active_percent counters/l2_hit_percent counters/counters_reason time/copies";

}  // namespace attnbench
