// Tables of READMEs, for tests that compare their figures with committed results.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/tree_files.h"

namespace attnbench::tree {

/// The cells of a line `| a | b |`, backticks and outer spaces removed.
inline std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream split(line.substr(1));
  for (std::string cell; std::getline(split, cell, '|');) {
    cell.erase(std::remove(cell.begin(), cell.end(), '`'), cell.end());
    const std::size_t first = cell.find_first_not_of(' ');
    out.push_back(first == std::string::npos ? ""
                                             : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return out;
}

/// The rows of the table whose first line begins with `header`, without that line and the one under it.
inline std::vector<std::vector<std::string>> table(const std::string& text, const std::string& header) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (!inside) {
      inside = line.rfind(header, 0) == 0;
    } else if (line.rfind('|', 0) != 0) {
      break;
    } else if (line.rfind("|--", 0) != 0) {
      rows.push_back(cells(line));
    }
  }
  return rows;
}

/// Whether a figure ("12.3", "1074.3 MB") is another one than `value` rounded to its digits.
inline bool differs(const std::string& cell, double value) {
  const std::string figure = cell.substr(0, cell.find(' '));
  const std::size_t dot = figure.find('.');
  const double digit =
      dot == std::string::npos ? 1 : std::pow(10.0, -static_cast<double>(figure.size() - dot - 1));
  return !(std::abs(std::stod(figure) - value) <= 0.51 * digit);
}

}  // namespace attnbench::tree
