// Stored results as a table: chosen columns, sorted or grouped.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/report/table.h"
#include "harness/results/record.h"

namespace attnbench {

struct ShowOptions {
  std::vector<std::string> columns;
  std::vector<std::string> by;  ///< columns whose values make a group of records; empty: no groups
  std::string sort;             ///< a column; empty: as stored
  bool descending = false;
  std::size_t limit = 0;  ///< rows; 0: all
};

struct ShownTable {
  std::vector<std::string> columns;
  std::vector<std::vector<nlohmann::ordered_json>> rows;  ///< null: unknown
};

/// Columns by name: a short name, one of results.csv, a parameter of the case, or a place in an entry ("check/rows").
/// A row per record, or per group: the number of its records (`cases`), and of each column the value that all have, or
/// the geometric mean of numbers. Throws Error for an unknown column; its message lists them.
ShownTable show(std::span<const Record> records, const ShowOptions& options);

/// `format`: "table", "csv", "md" or "json".
void write_shown(std::ostream& out, const ShownTable& table, const std::string& format,
                 const TableOptions& style);

}  // namespace attnbench
