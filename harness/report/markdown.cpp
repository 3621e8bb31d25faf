#include "harness/report/markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "harness/compare/token_time.h"
#include "harness/report/columns.h"
#include "harness/report/failures.h"
#include "harness/report/summary.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

std::string time_cell(const Record& r) {
  if (!r.time) return "-";
  return fmt::format("{}{} ± {}%{}", time_text(r.time->median_us), time_mark(*r.time),
                     digits(100 * r.time->half_interval(), 2), r.time->vague() ? "?" : "");
}

void write_row(std::ostream& out, const Record& r, const std::vector<FigureColumn>& figures,
               const FigureStyle& style) {
  out << "| " << status_name(r.status) << " | " << markdown_code(r.item.id) << " | "
      << markdown_code(r.kernel);
  const bool skipped = r.status == Status::kSkip;
  if (skipped) {
    out << " | - | - | - | - | " << markdown_text(r.reason) << " | | |";
  } else {
    out << " | " << time_cell(r) << " |";
  }
  for (const FigureColumn& f : figures) {
    if (skipped && !f.counter) continue;  // the reason stands there
    const std::string cell = markdown_text(f.cell(r, style));
    out << ' ' << (cell.empty() ? f.unknown : cell) << " |";
  }
  out << '\n';
}

/// A fence that no line of the text can close.
std::string fence_for(const std::string& text) {
  std::size_t longest = 0, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return std::string(std::max<std::size_t>(3, longest + 1), '`');
}

/// Makes each line safe separately.
std::string lines_of(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out += (out.empty() ? "" : "\n") + one_line(line);
  return out;
}

}  // namespace

std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      if (std::string_view("\\`*_[]|~#").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string markdown_code(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '|') out += '\\';  // GitHub splits cells before it looks for code
    out += c == '`' ? '\'' : c;
  }
  return out.empty() ? "" : "`" + out + "`";
}

void write_markdown(std::ostream& out, const RunContext& context, std::span<const Record> records) {
  out << "## attnbench" << (context.name.empty() ? "" : ": ") << markdown_text(context.name) << "\n\n";
  out << fmt::format("{} ({}), {} {}, {}\n\n", markdown_text(context.device.model),
                     markdown_text(context.device.name), markdown_text(context.version),
                     markdown_text(context.revision), markdown_text(context.date));
  out << "**" << summary_text(records) << "**";
  if (!context.complete)
    out << fmt::format(" (incomplete: {} of {} planned)", records.size(), context.planned);
  out << "\n";
  for (const Coverage& c : coverage_of(records)) out << "\n- " << markdown_text(coverage_text(c));
  for (const std::string& pattern : failure_patterns(records)) out << "\n- " << markdown_text(pattern);
  for (const TokenTime& t : token_times(step_times(records)))
    out << "\n- " << markdown_text(token_time_text(t));
  const bool counters = std::ranges::any_of(records, [](const Record& r) { return r.counters.has_value(); });
  const bool disturbed = context.ceilings.disturbed;
  const FigureStyle style{rate_unit_of(records), disturbed, 4};
  std::vector<FigureColumn> figures = figure_columns(style.rate);
  if (!counters) std::erase_if(figures, [](const FigureColumn& f) { return f.counter; });
  out << "\n\n| status | case | kernel | time ± % |";
  for (const FigureColumn& f : figures) out << ' ' << f.markdown << " |";
  out << "\n|---|---|---|--:|";
  for (const FigureColumn& f : figures) out << (f.table.align == Align::kLeft ? "---|" : "--:|");
  out << '\n';
  for (const Record& r : records) write_row(out, r, figures, style);

  const auto line = [&](const std::string& text) {
    if (!text.empty()) out << '\n' << markdown_text(text) << '\n';
  };
  line(ceilings_legend(records, disturbed));
  for (const std::string& legend : time_legends(records)) line(legend);
  for (const std::string& text : {time_marks(records), two_speed_times(records), other_check_legend(records)})
    line(text);
  if (const std::vector<std::string> seen = seen_mistakes(records); !seen.empty())
    line(fmt::format("The passed cases would have shown: {}", fmt::join(seen, "; ")));
  bool heading = false;
  for (const RankedFailure& failure : ranked_failures(records)) {
    const Record& r = *failure.record;
    if (!heading) out << "\n### To look at\n";
    heading = true;
    out << "\n**" << status_name(r.status) << "** " << markdown_code(record_name(r)) << ": "
        << markdown_text(reason_text(r)) << "\n";
    std::vector<std::string> told = r.check ? r.check->clues : std::vector<std::string>{};
    if (failure.alike > 1) told.push_back(failure.alike_text());
    if (!told.empty()) out << "\n";
    for (const std::string& text : told) out << "- " << markdown_text(text) << "\n";
    const auto block = [&](const char* language, const std::string& text) {
      if (text.empty()) return;
      const std::string fence = fence_for(text);
      out << "\n" << fence << language << "\n" << text << "\n" << fence << "\n";
    };
    block("text", lines_of(r.log));
    block("sh", one_line(r.repro));
  }
}

}  // namespace attnbench
