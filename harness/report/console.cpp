#include "harness/report/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <sstream>

#include "harness/compare/token_time.h"
#include "harness/report/failures.h"
#include "harness/report/rank_times.h"
#include "harness/report/summary.h"
#include "harness/report/table.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

constexpr std::size_t kFirstFigure = 3, kFirstCounter = 11;  ///< columns
constexpr std::size_t kMostFailures = 10;                    ///< failures whose reasons are printed
constexpr std::size_t kMostSkips = 8;                        ///< reasons of skips that are printed
constexpr std::ptrdiff_t kMostSkippedRows = 20;              ///< more skipped runs are left out of the table

Colour colour_of(Status s) {
  return s == Status::kPass ? Colour::kGreen : s == Status::kSkip ? Colour::kYellow : Colour::kRed;
}

std::string cell(const std::optional<double>& figure) { return figure ? digits(*figure, 3) : "-"; }

/// Adds nothing if the run did not request counters; the columns are then omitted.
void add_counters(const Record& r, std::vector<std::string>& cells) {
  if (!r.counters) return;
  cells.push_back(cell(dram_over_model(r)));
  cells.push_back(cell(r.counters->tensor_active_percent));
  cells.push_back(cell(r.counters->l2_hit_percent));
}

/// How times, rates and shares are printed.
struct Units {
  double per_tflops = 1;  ///< RateUnit
  const char* mark = "";  ///< behind %SOL and bound
  std::size_t marks = 0;  ///< width of the longest mark of a time
};

TableRow row_of(const Record& r, const Units& units) {
  TableRow row{{status_name(r.status), one_line(r.item.id), one_line(r.kernel)}, colour_of(r.status), ""};
  if (r.status == Status::kSkip) {
    row.rest = one_line(r.reason);
    return row;
  }
  if (r.check && r.check->refusal && r.status == Status::kPass) {
    row.rest = "refused: " + one_line(r.check->refusal->message);
    return row;
  }
  const auto add = [&](std::string cell) { row.cells.push_back(std::move(cell)); };
  if (r.time) {
    const TimeResult& t = *r.time;
    add(fmt::format("{}{:{}}", time_text(t.median_us), time_mark(t), units.marks));
    add(digits(100 * t.half_interval(), 2) + (t.vague() ? "?" : ""));
  } else {
    row.cells.insert(row.cells.end(), 2, "-");
  }
  if (r.roofline) {
    add(r.roofline->flop > 0 ? digits(r.roofline->tflops * units.per_tflops) : "-");
    add(digits(r.roofline->gbs));
    add(r.roofline->sol ? digits(100 * *r.roofline->sol, 3) + units.mark : "-");
    add(r.roofline->bound.empty() ? "-" : one_line(r.roofline->bound) + units.mark);
  } else {
    row.cells.insert(row.cells.end(), 4, "-");
  }
  add(r.check ? z_cell(*r.check) : "-");
  add(!r.check ? "-" : rows_text(*r.check));
  add_counters(r, row.cells);
  return row;
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
    out << fmt::format("  and {} reason{} more, in the report\n", skips.size() - kMostSkips,
                       skips.size() - kMostSkips == 1 ? "" : "s");
  const std::vector<Coverage> kernels = coverage_of(records);
  if (kernels.size() > 1 || (kernels.size() == 1 && (!kernels.front().whole() || kernels.front().waived))) {
    out << "\nkernels:\n";
    for (const Coverage& c : kernels) line("  " + one_line(coverage_text(c)));
  }
  const std::vector<std::string> invariants = invariant_sums(records);
  if (!invariants.empty()) out << "\ninvariants:\n";
  for (const std::string& text : invariants) line("  " + one_line(text));
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
  const std::vector<const Record*> shown = simplest_failures(records, kMostFailures);
  for (const Record* r : shown) {
    out << '\n'
        << paint(status_name(r->status), Colour::kRed, options.colour) << ' ' << one_line(record_name(*r))
        << "\n  " << one_line(reason_text(*r)) << '\n';
    print_details(out, *r);
    if (!r->repro.empty()) out << "  reproduce: " << one_line(r->repro) << '\n';
  }
  const auto all = std::count_if(records.begin(), records.end(),
                                 [](const Record& r) { return needs_attention(r.status); });
  if (static_cast<std::size_t>(all) > shown.size()) {
    out << fmt::format(
        "\nThese are {} of {}, of each kind those with the least work; the report has the others' reasons.\n",
        shown.size(), all);
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
  const RateUnit rate = rate_unit_of(records);
  std::size_t widest = 0;
  for (const Record& r : records) widest = std::max(widest, r.time ? time_mark(*r.time).size() : 0);
  const Units units{rate.per_tflops, options.ceilings_disturbed ? "*" : "", widest};
  const std::vector<TableColumn> columns = {{"status", Align::kLeft},
                                            {"case", Align::kLeft, true},
                                            {"kernel", Align::kLeft},
                                            {"time"},
                                            {"± %"},
                                            {rate.name},
                                            {"GB/s"},
                                            {"%SOL"},
                                            {"bound", Align::kLeft, false, true},
                                            {"max|z|", Align::kRight, false, true},
                                            {"rows", Align::kRight, false, true},
                                            {"DRAM/model"},
                                            {"tensor %"},
                                            {"L2 hit %"}};
  const auto skipped = [](const Record& r) { return r.status == Status::kSkip; };
  const auto skips = std::count_if(records.begin(), records.end(), skipped);
  std::vector<TableRow> rows;
  for (const Record& r : records) {
    if (skips <= kMostSkippedRows || !skipped(r)) rows.push_back(row_of(r, units));
  }
  // Columns without any measurement would take space from the ids.
  for (std::size_t i = kFirstFigure; i < kFirstCounter; ++i) {
    const auto none = [&](const TableRow& r) { return r.cells.size() <= i || r.cells[i] == "-"; };
    if (!std::all_of(rows.begin(), rows.end(), none)) continue;
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
  if (const std::string legend = ceilings_legend(records, options.ceilings_disturbed); !legend.empty())
    out << "\n" << legend << "\n";
  const auto beats = [](const Record& r) {
    return r.roofline && r.roofline->sol && *r.roofline->sol >= 1.005;
  };
  if (std::any_of(records.begin(), records.end(), beats)) {
    out << "\n%SOL over 100: faster than the measured ceilings, which something slowed while they were "
           "measured. Run again on a quiet machine\n";
  }
  for (const std::string& legend : time_legends(records)) out << '\n' << legend << '\n';
  if (const std::string legend = other_check_legend(records); !legend.empty()) out << '\n' << legend << '\n';
  print_failures(out, records, options);
  print_sums(out, records, options.width);
  if (const std::string marks = time_marks(records); !marks.empty()) out << '\n' << one_line(marks) << '\n';
  if (const std::string speeds = two_speed_times(records); !speeds.empty()) out << '\n' << speeds << '\n';
  const double seconds = std::round(1000 * options.elapsed_s) / 1000;
  out << (rows.empty() ? "" : "\n")
      << fmt::format("{}; {} s\n", summary_text(summarise(records)),
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

}  // namespace attnbench
