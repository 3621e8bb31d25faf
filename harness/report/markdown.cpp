#include "harness/report/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "harness/compare/token_time.h"
#include "harness/report/failures.h"
#include "harness/report/summary.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

std::string figure(double v, bool known) { return known ? digits(v) : "-"; }

std::string time_cell(const Record& r) {
  if (!r.time) return "-";
  return fmt::format("{}{} ± {}%{}", time_text(r.time->median_us), time_mark(*r.time),
                     digits(100 * r.time->half_interval(), 2), r.time->vague() ? "?" : "");
}

/// Cells of the hardware's counters, for tables where a record has counters.
std::string counter_cells(const Record& r) {
  const CounterReading c = r.counters.value_or(CounterReading{});
  std::string out;
  for (const std::optional<double>& f : {dram_over_model(r), c.tensor_active_percent, c.l2_hit_percent}) {
    out += fmt::format(" {} |", f ? digits(*f, 3) : "-");
  }
  return out;
}

/// `mark`: behind %SOL and bound.
void write_row(std::ostream& out, const Record& r, const RateUnit& rate, bool counters, const char* mark) {
  const Roofline roof = r.roofline.value_or(Roofline{});
  const bool has_roof = r.roofline.has_value();
  out << "| " << status_name(r.status) << " | " << markdown_code(r.item.id) << " | "
      << markdown_code(r.kernel);
  if (r.status == Status::kSkip) {
    out << " | - | - | - | - | " << markdown_text(r.reason) << " | | |" << (counters ? counter_cells(r) : "")
        << "\n";
    return;
  }
  out << " | " << time_cell(r) << " | " << figure(roof.tflops * rate.per_tflops, roof.flop > 0) << " | "
      << figure(roof.gbs, has_roof) << " | " << figure(100 * roof.sol.value_or(0), roof.sol.has_value())
      << (roof.sol ? mark : "") << " | " << markdown_text(roof.bound) << (roof.bound.empty() ? "" : mark)
      << " | ";
  if (r.check) out << z_cell(*r.check);
  out << " | " << (r.check ? rows_text(*r.check) : "") << " |" << (counters ? counter_cells(r) : "") << "\n";
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
  out << "**" << summary_text(summarise(records)) << "**";
  if (!context.complete)
    out << fmt::format(" (incomplete: {} of {} planned)", records.size(), context.planned);
  out << "\n";
  for (const Coverage& c : coverage_of(records)) out << "\n- " << markdown_text(coverage_text(c));
  for (const std::string& pattern : failure_patterns(records)) out << "\n- " << markdown_text(pattern);
  for (const TokenTime& t : token_times(step_times(records)))
    out << "\n- " << markdown_text(token_time_text(t));
  const bool counters =
      std::any_of(records.begin(), records.end(), [](const Record& r) { return r.counters.has_value(); });
  const RateUnit rate = rate_unit_of(records);
  out << "\n\n| status | case | kernel | time ± % | " << rate.name
      << " | GB/s | %SOL | bound | max \\|z\\| | rows |"
      << (counters ? " DRAM/model | tensor % | L2 hit % |" : "")
      << "\n|---|---|---|--:|--:|--:|--:|---|--:|--:|" << (counters ? "--:|--:|--:|" : "") << "\n";
  const bool disturbed = context.ceilings.disturbed;
  for (const Record& r : records) write_row(out, r, rate, counters, disturbed ? "\\*" : "");

  if (const std::string legend = ceilings_legend(records, disturbed); !legend.empty())
    out << "\n" << markdown_text(legend) << "\n";
  for (const std::string& legend : time_legends(records)) out << "\n" << markdown_text(legend) << "\n";
  if (const std::string marks = time_marks(records); !marks.empty())
    out << "\n" << markdown_text(marks) << "\n";
  if (const std::string speeds = two_speed_times(records); !speeds.empty())
    out << "\n" << markdown_text(speeds) << "\n";
  if (const std::string legend = other_check_legend(records); !legend.empty())
    out << "\n" << markdown_text(legend) << "\n";
  bool heading = false;
  for (const Record& r : records) {
    if (!needs_attention(r.status)) continue;
    if (!heading) out << "\n### To look at\n";
    heading = true;
    out << "\n**" << status_name(r.status) << "** " << markdown_code(record_name(r)) << ": "
        << markdown_text(reason_text(r)) << "\n";
    if (r.check && !r.check->clues.empty()) {
      out << "\n";
      for (const std::string& clue : r.check->clues) out << "- " << markdown_text(clue) << "\n";
    }
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
