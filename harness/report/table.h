// A text table with aligned columns that fits a terminal.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace attnbench {

enum class Align { kLeft, kRight };
enum class Colour { kNone, kGreen, kRed, kYellow };
/// What begins each colour; the first ends it.
inline constexpr std::string_view kColourCodes[] = {"\033[0m", "\033[32m", "\033[31m", "\033[33m"};

struct TableColumn {
  std::string header;
  Align align = Align::kRight;
  /// If the table is wider than the terminal, the cell gets a line of its own above the rows that share it.
  /// So an id stays whole and can be copied.
  bool heading = false;
  /// Omitted, from the right, if the table is still wider than the terminal.
  bool spare = false;
};

struct TableRow {
  std::vector<std::string> cells;  ///< one line of valid UTF-8 each
  Colour colour = Colour::kNone;   ///< of the first cell
  std::string rest;                ///< if not empty: replaces the missing cells at the end
};

struct TableOptions {
  std::size_t width = 0;  ///< columns of the terminal; 0: as wide as needed
  bool colour = false;    ///< ANSI escapes
};

/// Prints a header and a line per row, with two spaces between columns and none at the end of a line. A
/// column that is empty in all rows is omitted.
void print_table(std::ostream& out, const std::vector<TableColumn>& columns,
                 const std::vector<TableRow>& rows, const TableOptions& options);

std::string paint(const std::string& text, Colour colour, bool enabled);

}  // namespace attnbench
