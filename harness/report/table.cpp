#include "harness/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "harness/results/text.h"

namespace attnbench {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kIndent = 2;  ///< indent of rows below a heading

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::size_t have = display_width(text);
  const std::string fill(width > have ? width - have : 0, ' ');
  return align == Align::kLeft ? text + fill : fill + text;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

/// Width of each column; 0 for a column that is empty in all rows.
std::vector<std::size_t> column_widths(const std::vector<TableColumn>& columns,
                                       const std::vector<TableRow>& rows) {
  std::vector<std::size_t> widths(columns.size(), 0);
  for (const TableRow& row : rows) {
    for (std::size_t i = 0; i < row.cells.size() && i < columns.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row.cells[i]));
    }
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (widths[i] > 0) widths[i] = std::max(widths[i], display_width(columns[i].header));
  }
  return widths;
}

std::size_t table_width(const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (const std::size_t w : widths) total += w == 0 ? 0 : w + (total > 0 ? kGap : 0);
  return total;
}

}  // namespace

std::string paint(const std::string& text, Colour colour, bool enabled) {
  if (!enabled || colour == Colour::kNone) return text;
  return fmt::format("{}{}{}", kColourCodes[static_cast<std::size_t>(colour)], text, kColourCodes[0]);
}

void print_table(std::ostream& out, const std::vector<TableColumn>& columns,
                 const std::vector<TableRow>& rows, const TableOptions& options) {
  std::vector<std::size_t> widths = column_widths(columns, rows);
  std::size_t heading = columns.size(), indent = 0;
  if (options.width > 0 && table_width(widths) > options.width) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (!columns[i].heading) continue;
      heading = i;
      widths[i] = 0;
      indent = kIndent;
    }
    for (std::size_t i = columns.size(); i-- > 0 && indent + table_width(widths) > options.width;) {
      if (columns[i].spare) widths[i] = 0;
    }
  }
  const auto line_of = [&](const TableRow& row, bool header) {
    std::string line(indent, ' ');
    std::size_t used = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i >= row.cells.size()) break;
      if (widths[i] == 0) continue;
      if (used > 0) line.append(kGap, ' ');
      const std::string cell = padded(row.cells[i], widths[i], columns[i].align);
      used += (used > 0 ? kGap : 0) + widths[i];
      line += i == 0 && !header ? paint(cell, row.colour, options.colour) : cell;
    }
    if (row.rest.empty()) return trimmed(line);
    line.append(kGap, ' ');
    used += indent + kGap;
    const std::size_t room = options.width > used ? options.width - used : 20;
    return line + (options.width == 0 ? row.rest : shorten_end(row.rest, room));
  };
  TableRow header;
  for (const TableColumn& column : columns) header.cells.push_back(column.header);
  out << line_of(header, true) << '\n';
  const std::string* above = nullptr;
  for (const TableRow& row : rows) {
    if (heading < row.cells.size() && (above == nullptr || *above != row.cells[heading])) {
      above = &row.cells[heading];
      out << *above << '\n';
    }
    out << line_of(row, false) << '\n';
  }
}

}  // namespace attnbench
