// A text table with aligned columns that fits a terminal.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

namespace attnbench {

enum class Align { kLeft, kRight };
enum class Colour { kNone, kGreen, kRed, kYellow };

struct TableColumn {
  std::string header;
  Align align = Align::kRight;
  /// Where the table is wider than the terminal, the cell stands whole on a line of its own above the rows
  /// that have it in common: an id can be told from its neighbours, and copied.
  bool heading = false;
  /// Left out, from the right, where the table is wider than the terminal all the same.
  bool spare = false;
};

struct TableRow {
  std::vector<std::string> cells;  ///< one line of valid UTF-8 each
  Colour colour = Colour::kNone;   ///< of the first cell
  std::string rest;                ///< when not empty: stands where the cells that are missing would
};

struct TableOptions {
  std::size_t width = 0;  ///< columns of the terminal; 0: as wide as it needs
  bool colour = false;    ///< ANSI escapes
};

/// Header, a line per row, two spaces between columns, none at the end of a line. A column that is empty in
/// all rows is left out.
void print_table(std::ostream& out, const std::vector<TableColumn>& columns,
                 const std::vector<TableRow>& rows, const TableOptions& options);

std::string paint(const std::string& text, Colour colour, bool enabled);

}  // namespace attnbench
