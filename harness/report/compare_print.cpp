#include "harness/report/compare_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "harness/record/text.h"
#include "harness/report/markdown.h"

namespace attnbench {
namespace {

Colour colour_of(Change c) {
  switch (c) {
    case Change::kFaster:
      return Colour::kGreen;
    case Change::kSame:
    case Change::kNotCompared:
      return Colour::kNone;
    case Change::kInconclusive:
      return Colour::kYellow;
    default:
      return Colour::kRed;
  }
}

std::string kernel_of(const CompareRow& r) {
  if (r.base_kernel == r.new_kernel || r.base_kernel.empty()) return r.new_kernel;
  return r.new_kernel.empty() ? r.base_kernel : r.base_kernel + " -> " + r.new_kernel;
}

std::string time_cell(const std::optional<double>& us) { return us ? time_text(*us) : "-"; }

/// "+4.87"
std::string figure(double ratio) { return fmt::format("{:+.2f}", 100 * (ratio - 1)); }

/// True if the printed medians and the printed change point in different directions.
bool signs_differ(const CompareRow& r) {
  if (!r.ratio || !r.base_us || !r.new_us || time_text(*r.base_us) == time_text(*r.new_us)) return false;
  if (figure(*r.ratio) == figure(1) || std::abs(*r.ratio - 1) < 5e-5) return false;
  return (*r.new_us > *r.base_us) != (*r.ratio > 1);
}

/// "+4.87", or "+4.87*" where the footnote belongs to it.
std::string change_cell(const CompareRow& r) {
  return r.ratio ? figure(*r.ratio) + (signs_differ(r) ? "*" : "") : "-";
}

/// Why the sign of a change is not that of the difference of the times; empty if there is no such row.
std::string sign_footnote(const CompareResult& result) {
  if (std::none_of(result.rows.begin(), result.rows.end(), signs_differ)) return "";
  return fmt::format(
      "* not the sign of new - base: these are medians, and the change compares midmeans (means of the middle "
      "half of the samples{})",
      result.as_sol ? ", in multiples of the least possible time"
                    : ", on a CPU divided by the time of its test loop");
}

std::string interval_cell(const CompareRow& r) {
  return r.lo && r.hi ? fmt::format("{:+.2f} .. {:+.2f}", 100 * (*r.lo - 1), 100 * (*r.hi - 1)) : "-";
}

/// " (3 of them only within up to 8.7 %, more than the minimum effect)": changes below this width are not
/// seen.
std::string only_within(const CompareResult& result) {
  std::size_t n = 0;
  double widest = 0;
  for (const CompareRow& r : result.rows) {
    if (r.change != Change::kSame || !r.within) continue;
    ++n;
    widest = std::max(widest, *r.within);
  }
  if (n == 0) return "";
  return fmt::format(" ({} of them only within {}{:.1f} %, more than the minimum effect)", n,
                     n == 1 ? "" : "up to ", 100 * widest);
}

/// "207 cases that neither side timed have no row"; empty if there are none.
std::string untimed_text(const CompareResult& result) {
  const auto n =
      std::count_if(result.rows.begin(), result.rows.end(), [](const CompareRow& r) { return r.untimed; });
  if (n == 0) return "";
  return fmt::format("{} case{} that neither side timed {} no row", n, n == 1 ? "" : "s",
                     n == 1 ? "has" : "have");
}

}  // namespace

std::string sweep_means(const CompareResult& result) {
  if (result.sweeps.size() < 2) return "";  // the mean over all cases is enough
  std::string text;
  for (const SweepMean& s : result.sweeps) {
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ",
                        s.sweep.empty() ? "unnamed" : one_line(s.sweep), digits(s.geomean), s.compared);
  }
  return "geometric mean by sweep (cases): " + text;
}

std::string compare_summary(const CompareResult& result) {
  std::string text;
  for (const Change c :
       {Change::kError, Change::kIncorrect, Change::kMissingNew, Change::kMissingBase, Change::kSlower,
        Change::kInconclusive, Change::kSame, Change::kFaster, Change::kNotCompared}) {
    const bool verdict =
        c == Change::kSlower || c == Change::kInconclusive || c == Change::kSame || c == Change::kFaster;
    if (result.count(c) == 0 && !verdict) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", result.count(c), change_name(c));
    if (c == Change::kSame) text += only_within(result);
  }
  if (result.geomean) {
    text += fmt::format("; geometric mean of new / base{} {} over {} case{}",
                        result.as_sol ? " (time in multiples of the least possible)" : "",
                        digits(*result.geomean), result.compared, result.compared == 1 ? "" : "s");
    constexpr double kTold = 1.05;  // a difference that a reader would say in words
    const bool decided = result.count(Change::kFaster) + result.count(Change::kSlower) > 0;
    if (decided && *result.geomean < 1 / kTold)
      text += fmt::format(": new is {} times as fast", digits(1 / *result.geomean, 3));
    if (decided && *result.geomean > kTold)
      text += fmt::format(": new takes {} times as long", digits(*result.geomean, 3));
  }
  return text;
}

void print_compare(std::ostream& out, const CompareResult& result, const TableOptions& options) {
  const std::vector<TableColumn> columns = {{"verdict", Align::kLeft},
                                            {"case", Align::kLeft, true},
                                            {"kernel", Align::kLeft},
                                            {"base"},
                                            {"new"},
                                            {"change %"},
                                            {"95 % interval"},
                                            {"note", Align::kLeft}};
  std::vector<TableRow> rows;
  for (const CompareRow& r : result.rows) {
    if (r.untimed) continue;
    TableRow row{{change_name(r.change), one_line(r.id), one_line(kernel_of(r))}, colour_of(r.change), ""};
    if (r.ratio) {
      row.cells.insert(row.cells.end(), {time_cell(r.base_us), time_cell(r.new_us), change_cell(r),
                                         interval_cell(r), one_line(r.note)});
    } else {
      row.cells.insert(row.cells.end(), {time_cell(r.base_us), time_cell(r.new_us)});
      row.rest = one_line(r.note);
    }
    rows.push_back(std::move(row));
  }
  if (!rows.empty()) print_table(out, columns, rows, options);
  for (const CompareRow& r : result.rows) {
    if (r.change != Change::kError && r.change != Change::kIncorrect) continue;
    out << '\n'
        << paint(change_name(r.change), Colour::kRed, options.colour) << ' '
        << one_line(kernel_of(r).empty() ? r.id : r.id + ", " + kernel_of(r)) << "\n  " << one_line(r.note)
        << '\n';
    if (!r.repro.empty()) out << "  reproduce: " << one_line(r.repro) << '\n';
  }
  out << (rows.empty() ? "" : "\n") << compare_summary(result) << '\n';
  if (const std::string note = sign_footnote(result); !note.empty()) out << note << '\n';
  if (const std::string untimed = untimed_text(result); !untimed.empty()) out << untimed << '\n';
  if (const std::string means = sweep_means(result); !means.empty()) out << means << '\n';
  if (!result.stopped.empty()) out << one_line(result.stopped) << '\n';
}

void write_compare_markdown(std::ostream& out, const CompareResult& result) {
  out << "**" << compare_summary(result) << "**\n\n";
  if (!result.stopped.empty()) out << markdown_text(result.stopped) << "\n\n";
  if (const std::string means = sweep_means(result); !means.empty()) out << markdown_text(means) << "\n\n";
  if (const std::string untimed = untimed_text(result); !untimed.empty()) out << untimed << "\n\n";
  if (!result.rows.empty() &&
      std::all_of(result.rows.begin(), result.rows.end(), [](const CompareRow& r) { return r.untimed; }))
    return;
  out << "| verdict | case | kernel | base | new | change, % | 95 % interval | note |\n"
         "|---|---|---|--:|--:|--:|--:|---|\n";
  for (const CompareRow& r : result.rows) {
    if (r.untimed) continue;
    out << "| " << change_name(r.change) << " | " << markdown_code(r.id) << " | "
        << markdown_code(kernel_of(r)) << " | " << time_cell(r.base_us) << " | " << time_cell(r.new_us)
        << " | " << markdown_text(change_cell(r)) << " | " << interval_cell(r) << " | "
        << markdown_text(r.note) << " |\n";
  }
  if (const std::string note = sign_footnote(result); !note.empty())
    out << "\n" << markdown_text(note) << "\n";
}

}  // namespace attnbench
