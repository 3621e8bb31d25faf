// An HTML file without scripts: facts, a table and a plot.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/report/html/svg_canvas.h"
#include "harness/report/table.h"

namespace attnbench {

struct StaticPage {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  ///< name and text
  std::vector<TableColumn> columns;
  std::vector<TableRow> rows;
  SvgChart chart;
};

/// The whole file, which needs no other.
std::string write_static_page(const StaticPage& page);

}  // namespace attnbench
