#include "harness/report/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <sstream>

#include "harness/compare/token_time.h"
#include "harness/report/columns.h"
#include "harness/report/failures.h"
#include "harness/report/summary.h"
#include "harness/report/table.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

constexpr std::size_t kFirstFigure = 3;          ///< columns before it say which record a row is of
constexpr std::size_t kMostFailures = 10;        ///< failures whose reasons are printed
constexpr std::size_t kMostSkips = 8;            ///< reasons of skips that are printed
constexpr std::ptrdiff_t kMostSkippedRows = 20;  ///< more skipped runs are left out of the table

Colour colour_of(Status s) {
  return s == Status::kPass ? Colour::kGreen : s == Status::kSkip ? Colour::kYellow : Colour::kRed;
}

/// marks: width of the longest mark of a time.
TableRow row_of(const Record& r, const std::vector<FigureColumn>& figures, const FigureStyle& style,
                std::size_t marks) {
  TableRow row{{status_name(r.status), one_line(r.item.id), one_line(r.kernel)}, colour_of(r.status), ""};
  if (r.status == Status::kSkip) {
    row.rest = one_line(r.reason);
    return row;
  }
  if (r.check && r.check->refusal && r.status == Status::kPass) {
    row.rest = "refused: " + one_line(r.check->refusal->message);
    return row;
  }
  if (r.time) {
    const TimeResult& t = *r.time;
    row.cells.push_back(fmt::format("{}{:{}}", time_text(t.median_us), time_mark(t), marks));
    row.cells.push_back(digits(100 * t.half_interval(), 2) + (t.vague() ? "?" : ""));
  } else {
    row.cells.insert(row.cells.end(), 2, "-");
  }
  for (const FigureColumn& f : figures) {
    const std::string cell = one_line(f.cell(r, style));
    row.cells.push_back(cell.empty() && !f.counter ? "-" : cell);
  }
  return row;
}

/// What several devices did in a launch that they shared: for each timed record its name, and lines with the times of its
/// ranks.
std::vector<std::string> rank_lines(std::span<const Record> records) {
  std::vector<std::string> lines;
  for (const Record& r : records) {
    if (r.status != Status::kPass || !r.time || r.time->ranks.empty()) continue;
    lines.push_back(fmt::format(
        "{}: {:.1f} us to the end of the slowest rank; their clocks start at most {:.1f} us apart{}",
        record_name(r), r.time->median_us, r.time->skew_us,
        r.time->alone_us ? fmt::format("; exchanges alone take {:.1f} us", *r.time->alone_us) : ""));
    for (std::size_t i = 0; i < r.time->ranks.size(); ++i) {
      const RankTimes& t = r.time->ranks[i];
      lines.push_back(
          fmt::format("  rank {}: {:.1f} us = attention {:.1f} + communication {:.1f} + correction {:.1f}", i,
                      t.total_us, t.attention_us, t.communication_us, t.correction_us));
    }
  }
  return lines;
}

/// Skips by reason, what each kernel ran, and which kernel is faster by how much.
void print_sums(std::ostream& out, std::span<const Record> records, std::size_t width) {
  const auto line = [&](const std::string& text) {
    out << (width > 0 ? shorten_end(text, width) : text) << '\n';
  };
  const std::vector<std::string> skips = skip_reasons(records);
  if (!skips.empty()) out << "\nskipped:\n";
  for (std::size_t i = 0; i < std::min(skips.size(), kMostSkips); ++i) line("  " + one_line(skips[i]));
  if (skips.size() > kMostSkips)
    out << fmt::format("  and {} more, in the report\n",
                       counted(static_cast<int64_t>(skips.size() - kMostSkips), "reason"));
  const std::vector<Coverage> kernels = coverage_of(records);
  if (kernels.size() > 1 || (kernels.size() == 1 && (!kernels.front().whole() || kernels.front().waived))) {
    out << "\nkernels:\n";
    for (const Coverage& c : kernels) line("  " + one_line(coverage_text(c)));
  }
  const std::vector<std::string> invariants = invariant_sums(records);
  if (!invariants.empty()) out << "\ninvariants:\n";
  for (const std::string& text : invariants) line("  " + one_line(text));
  const std::vector<std::string> seen = seen_mistakes(records);
  if (!seen.empty()) out << "\nthe passed cases would have shown:\n";
  for (const std::string& text : seen) line("  " + text);
  const std::vector<std::string> ranks = rank_lines(records);
  if (!ranks.empty()) out << "\nranks:\n";
  for (const std::string& text : ranks) line("  " + one_line(text));
  const std::vector<std::string> speeds = relative_speeds(records);
  if (!speeds.empty()) out << '\n';
  for (const std::string& speed : speeds) line(one_line(speed));
  const std::vector<TokenTime> tokens = token_times(step_times(records));
  if (!tokens.empty()) out << '\n';
  for (const TokenTime& t : tokens) line(one_line(token_time_text(t)));
}

/// Prints the records to look at, with their reasons. If there are many, prints the simplest, and what they
/// have in common.
void print_failures(std::ostream& out, std::span<const Record> records, const ConsoleOptions& options) {
  const std::vector<RankedFailure> all = ranked_failures(records);
  const std::size_t shown = std::min(all.size(), kMostFailures);
  for (const RankedFailure& failure : std::span(all).first(shown)) {
    const Record* r = failure.record;
    out << '\n'
        << paint(status_name(r->status), Colour::kRed, options.colour) << ' ' << one_line(record_name(*r))
        << "\n  " << one_line(reason_text(*r)) << '\n';
    print_details(out, *r);
    if (const std::string alike = failure.alike_text(); !alike.empty()) out << "  " << alike << '\n';
    if (!r->repro.empty()) out << "  reproduce: " << one_line(r->repro) << '\n';
  }
  if (all.size() > shown) {
    out << fmt::format(
        "\nThese are {} of {}, of each kind those with the least work; the report has the others' reasons.\n",
        shown, all.size());
  }
  const std::vector<std::string> patterns = failure_patterns(records);
  if (!patterns.empty()) out << '\n';
  for (const std::string& pattern : patterns) out << one_line(pattern) << '\n';
}

}  // namespace

void print_details(std::ostream& out, const Record& r) {
  if (r.check) {
    for (const std::string& clue : r.check->clues) out << "  " << one_line(clue) << '\n';
  }
  std::istringstream lines(r.log);
  for (std::string line; std::getline(lines, line);) out << "  | " << one_line(line) << '\n';
}

void print_console(std::ostream& out, std::span<const Record> records, const ConsoleOptions& options) {
  const FigureStyle style{rate_unit_of(records), options.ceilings_disturbed};
  const std::vector<FigureColumn> figures = figure_columns(style.rate);
  std::size_t marks = 0;
  for (const Record& r : records) marks = std::max(marks, r.time ? time_mark(*r.time).size() : 0);
  std::vector<TableColumn> columns = {
      {"status", Align::kLeft}, {"case", Align::kLeft, true}, {"kernel", Align::kLeft}, {"time"}, {"± %"}};
  for (const FigureColumn& f : figures) columns.push_back(f.table);
  const auto skipped = [](const Record& r) { return r.status == Status::kSkip; };
  const auto skips = std::ranges::count_if(records, skipped);
  std::vector<TableRow> rows;
  for (const Record& r : records) {
    if (skips <= kMostSkippedRows || !skipped(r)) rows.push_back(row_of(r, figures, style, marks));
  }
  // Columns without any measurement would take space from the ids.
  const auto counters = static_cast<std::size_t>(
      std::ranges::count_if(figures, [](const FigureColumn& f) { return f.counter; }));
  for (std::size_t i = kFirstFigure; i < columns.size() - counters; ++i) {
    const auto none = [&](const TableRow& r) { return r.cells.size() <= i || r.cells[i] == "-"; };
    if (!std::ranges::all_of(rows, none)) continue;
    for (TableRow& r : rows) {
      if (r.cells.size() > i) r.cells[i].clear();
    }
  }
  if (!rows.empty()) print_table(out, columns, rows, {options.width, options.colour});
  if (skips > kMostSkippedRows) {
    out << fmt::format(
        "{}{} skipped runs are not listed here: below are their reasons, in the report each of them\n",
        rows.empty() ? "" : "\n", skips);
  }
  const auto line = [&](const std::string& text) {
    if (!text.empty()) out << '\n' << text << '\n';
  };
  line(ceilings_legend(records, options.ceilings_disturbed));
  const auto beats = [](const Record& r) {
    return r.roofline && r.roofline->sol && *r.roofline->sol >= 1.005;
  };
  if (std::ranges::any_of(records, beats))
    line(
        "%SOL over 100: faster than the measured ceilings, which something slowed while they were measured. Run again on "
        "a quiet machine");
  for (const std::string& legend : time_legends(records)) line(legend);
  line(other_check_legend(records));
  print_failures(out, records, options);
  print_sums(out, records, options.width);
  line(one_line(time_marks(records)));
  line(two_speed_times(records));
  const double seconds = std::round(1000 * options.elapsed_s) / 1000;
  out << (rows.empty() ? "" : "\n")
      << fmt::format("{}; {} s\n", summary_text(records),
                     seconds < 1 ? fmt::format("{:g}", seconds) : digits(seconds, 3));
}

std::string progress_line(const Record& r, int64_t done, int64_t planned, const ConsoleOptions& options) {
  const std::string total = std::to_string(planned);
  const std::string count =
      planned > 0 ? fmt::format("[{:>{}}/{}]", done, total.size(), total) : fmt::format("[{}]", done);
  std::string tail;
  if (r.status != Status::kPass) {
    tail = one_line(r.reason);
  } else if (r.time) {
    tail = time_text(r.time->median_us);
  }
  const std::string status = fmt::format("{:<5}", status_name(r.status));
  std::string name = one_line(record_name(r));
  if (options.width > 0) {
    const std::size_t used = count.size() + status.size() + 4;  // three gaps: 1, 1 and 2 columns
    tail = shorten_end(tail, std::max<std::size_t>(options.width / 2, 10));
    const std::size_t taken = used + display_width(tail);
    name = shorten_middle(name, std::max<std::size_t>(options.width > taken ? options.width - taken : 0, 12));
  }
  return fmt::format("{} {} {}{}{}", count, paint(status, colour_of(r.status), options.colour), name,
                     tail.empty() ? "" : "  ", tail);
}

std::size_t terminal_width(int fd) {
  winsize size{};
  return isatty(fd) == 1 && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

TableOptions style_of_stdout() {
  const std::size_t width = terminal_width(STDOUT_FILENO);
  return {width, width > 0 && !std::getenv("NO_COLOR")};
}

}  // namespace attnbench
