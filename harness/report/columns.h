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
extern const char kCsvColumns[];

}  // namespace attnbench
