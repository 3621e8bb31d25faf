#include "harness/report/compare_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "harness/report/markdown.h"
#include "harness/results/text.h"

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

/// "+4.87", or "+4.87#" where the footnote belongs to it. `*` is taken: in `run` it marks busy ceilings.
std::string change_cell(const CompareRow& r) {
  return r.ratio ? figure(*r.ratio) + (signs_differ(r) ? "#" : "") : "-";
}

/// Why a change does not follow from the times beside it; empty if no row has both.
std::string change_footnote(const CompareResult& result) {
  const auto has_both = [](const CompareRow& r) { return r.ratio && r.base_us && r.new_us; };
  if (std::ranges::none_of(result.rows, has_both)) return "";
  const bool signs = std::ranges::any_of(result.rows, signs_differ);
  return fmt::format(
      "base and new are medians{}{}{}",
      result.cpu_time
          ? " of CPU time; change compares the means of the quickest fifth of the samples, as other work only adds time"
          : "; change compares midmeans, the means of the middle half of the samples",
      result.as_sol ? ", in multiples of the least possible time" : "",
      signs ? "; #: the medians changed in the other direction" : "");
}

std::string interval_cell(const CompareRow& r) { return r.lo && r.hi ? interval_text(*r.lo, *r.hi) : "-"; }

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

/// The rows of a table. Where sides have other sweeps, hundreds of cases may be on one side only: such rows
/// say nothing that a count does not, so only the first of each sweep are shown.
struct ShownRows {
  std::vector<const CompareRow*> rows;
  std::vector<std::string> left_out;  ///< "missing in new: 57 cases more, of sweep decode"
};

ShownRows shown_rows(const CompareResult& result) {
  constexpr int64_t kFew = 10;   // of one verdict: all are shown
  constexpr int64_t kFirst = 3;  // of each sweep, if there are more
  ShownRows shown;
  std::vector<std::pair<const CompareRow*, int64_t>>
      sweeps;  // the first row of a verdict and sweep, and rows
  for (const CompareRow& r : result.rows) {
    if (r.untimed) continue;
    const bool one_side = r.change == Change::kMissingNew || r.change == Change::kMissingBase;
    if (one_side && result.count(r.change) > kFew) {
      auto it = std::ranges::find_if(
          sweeps, [&](const auto& s) { return s.first->change == r.change && s.first->sweep == r.sweep; });
      if (it == sweeps.end()) it = sweeps.insert(it, {&r, 0});
      if (++it->second > kFirst) continue;
    }
    shown.rows.push_back(&r);
  }
  for (const auto& [first, n] : sweeps) {
    if (n <= kFirst) continue;
    shown.left_out.push_back(fmt::format("{}: {} more{}", change_name(first->change),
                                         counted(n - kFirst, "case"),
                                         first->sweep.empty() ? "" : " of sweep " + one_line(first->sweep)));
  }
  return shown;
}

int64_t untimed_rows(const CompareResult& result) {
  return std::ranges::count_if(result.rows, [](const CompareRow& r) { return r.untimed; });
}

/// "207 cases that neither side timed have no row"; empty if there are none, or none was to be timed.
std::string untimed_text(const CompareResult& result) {
  const int64_t n = untimed_rows(result);
  if (n == 0 || result.verdicts_only) return "";
  return fmt::format("{} that neither side timed {} no row", counted(n, "case"), n == 1 ? "has" : "have");
}

/// Says which runs the comparison has left out, and why; empty if none.
std::string left_out_text(const CompareResult& result) {
  int64_t rows = 0;
  int base = 0, fresh = 0;
  for (const CompareRow& r : result.rows) {
    rows += r.left_out.base + r.left_out.fresh > 0;
    base = std::max(base, r.left_out.base);
    fresh = std::max(fresh, r.left_out.fresh);
  }
  if (rows == 0) return "";
  return fmt::format(
      "left out in {}: up to {} of base and {} of new, in which threads waited for each other much longer "
      "or shorter (handover_us) than in new's median run; that alone changes times",
      counted(rows, "case"), counted(base, "run"), fresh);
}

/// Says that nothing is on both sides; empty if something is.
std::string nothing_in_common_text(const CompareResult& result) {
  std::set<std::string> base, fresh;
  for (const CompareRow& r : result.rows) {
    if (r.change != Change::kMissingNew && r.change != Change::kMissingBase) return "";
    (r.change == Change::kMissingNew ? base : fresh).insert(r.id);
  }
  if (base.empty() || fresh.empty()) return "";
  const bool same_case = std::ranges::any_of(base, [&](const std::string& id) { return fresh.contains(id); });
  return same_case ? "no kernel ran the same case on both sides: --match case compares different kernels"
                   : "no case is on both sides: were they run with the same CONFIG and --set?";
}

/// Says what the intervals leave out where slower or faster rests on one run a side; empty if nowhere.
std::string one_run_text(const CompareResult& result) {
  const auto rows = std::ranges::count_if(result.rows, [](const CompareRow& r) {
    const bool decided = r.change == Change::kSlower || r.change == Change::kFaster;
    return decided && r.evidence && r.evidence->base_runs == 1 && r.evidence->new_runs == 1 &&
           r.evidence->noise.runs == 0;
  });
  if (rows == 0) return "";
  return fmt::format(
      "{} verdict{} on one run a side: the intervals leave out how far equal runs lie apart, which may be more than the "
      "change. attnbench gate (--against, --against-plugin) runs both sides in turns and measures it",
      rows, rows == 1 ? " rests" : "s rest");
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

std::string interval_text(double lo, double hi) {
  constexpr double kUnknown = 10;  // an interval of more than this factor says no more than its direction
  const double low = 100 * (lo - 1), high = 100 * (hi - 1);
  if (hi <= kUnknown * lo) return fmt::format("{:+.2f} .. {:+.2f}", low, high);
  if (lo > 1) return fmt::format("> {:+.2f}", low);
  return hi < 1 ? fmt::format("< {:+.2f}", high) : "over 10x wide";
}

std::string compare_summary(const CompareResult& result) {
  const int64_t untimed = untimed_rows(result);
  std::string text = result.verdicts_only ? fmt::format("{} right on both sides", untimed) : "";
  for (const Change c :
       {Change::kError, Change::kIncorrect, Change::kMissingNew, Change::kMissingBase, Change::kSlower,
        Change::kInconclusive, Change::kSame, Change::kFaster, Change::kNotCompared}) {
    const bool verdict =
        c == Change::kSlower || c == Change::kInconclusive || c == Change::kSame || c == Change::kFaster;
    const int64_t n = result.count(c) - (result.verdicts_only && c == Change::kNotCompared ? untimed : 0);
    if (n == 0 && (!verdict || result.verdicts_only)) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, change_name(c));
    if (c == Change::kSame) text += only_within(result);
  }
  if (result.geomean) {
    text += fmt::format("; geometric mean of new / base{} {} over {}",
                        result.as_sol ? " (time in multiples of the least possible)" : "",
                        digits(*result.geomean), counted(result.averaged, "case"));
    constexpr double kTold = 1.05;  // a difference that a reader would say in words
    const bool decided = result.count(Change::kFaster) + result.count(Change::kSlower) > 0;
    if (decided && *result.geomean < 1 / kTold)
      text += fmt::format(": new is {} times as fast", digits(1 / *result.geomean, 3));
    if (decided && *result.geomean > kTold)
      text += fmt::format(": new takes {} times as long", digits(*result.geomean, 3));
  }
  return text;
}

void print_compare(std::ostream& out, const CompareResult& result, const TableOptions& options,
                   const std::set<std::string>& told) {
  const std::vector<TableColumn> columns = {{"verdict", Align::kLeft},
                                            {"case", Align::kLeft, true},
                                            {"kernel", Align::kLeft},
                                            {"base"},
                                            {"new"},
                                            {"change %"},
                                            {"95 % interval"},
                                            {"note", Align::kLeft}};
  std::vector<TableRow> rows;
  const ShownRows shown = shown_rows(result);
  for (const CompareRow* shown_row : shown.rows) {
    const CompareRow& r = *shown_row;
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
  for (const std::string& more : shown.left_out) out << more << '\n';
  for (const CompareRow& r : result.rows) {
    if (r.change != Change::kError && r.change != Change::kIncorrect) continue;
    if (told.contains(r.id + "/" + r.new_kernel)) continue;
    out << '\n'
        << paint(change_name(r.change), Colour::kRed, options.colour) << ' '
        << one_line(kernel_of(r).empty() ? r.id : r.id + ", " + kernel_of(r)) << "\n  " << one_line(r.note)
        << '\n';
    for (const std::string& clue : r.clues) out << "  " << one_line(clue) << '\n';
    if (!r.repro.empty()) out << "  reproduce: " << one_line(r.repro) << '\n';
  }
  out << (rows.empty() ? "" : "\n") << compare_summary(result) << '\n';
  for (const std::string& note : {nothing_in_common_text(result), change_footnote(result),
                                  one_run_text(result), left_out_text(result), untimed_text(result)}) {
    if (!note.empty()) out << note << '\n';
  }
  if (const std::string means = sweep_means(result); !means.empty()) out << means << '\n';
  for (const TokenChange& t : result.tokens) out << one_line(token_change_text(t)) << '\n';
  if (!result.stopped.empty()) out << one_line(result.stopped) << '\n';
}

void write_compare_markdown(std::ostream& out, const CompareResult& result) {
  out << "**" << compare_summary(result) << "**\n\n";
  if (!result.stopped.empty()) out << markdown_text(result.stopped) << "\n\n";
  if (const std::string means = sweep_means(result); !means.empty()) out << markdown_text(means) << "\n\n";
  for (const TokenChange& t : result.tokens) out << markdown_text(token_change_text(t)) << "\n\n";
  if (const std::string untimed = untimed_text(result); !untimed.empty()) out << untimed << "\n\n";
  if (!result.rows.empty() && std::ranges::all_of(result.rows, [](const CompareRow& r) { return r.untimed; }))
    return;
  out << "| verdict | case | kernel | base | new | change, % | 95 % interval | note |\n"
         "|---|---|---|--:|--:|--:|--:|---|\n";
  const ShownRows shown = shown_rows(result);
  for (const CompareRow* row : shown.rows) {
    const CompareRow& r = *row;
    out << "| " << change_name(r.change) << " | " << markdown_code(r.id) << " | "
        << markdown_code(kernel_of(r)) << " | " << time_cell(r.base_us) << " | " << time_cell(r.new_us)
        << " | " << markdown_text(change_cell(r)) << " | " << interval_cell(r) << " | "
        << markdown_text(r.note);
    for (const std::string& clue : r.clues) out << "<br>" << markdown_text(clue);
    out << " |\n";
  }
  for (const std::string& more : shown.left_out) out << "\n" << markdown_text(more) << "\n";
  for (const std::string& note : {nothing_in_common_text(result), change_footnote(result),
                                  one_run_text(result), left_out_text(result)}) {
    if (!note.empty()) out << "\n" << markdown_text(note) << "\n";
  }
}

}  // namespace attnbench
