// What is in a trace of requests.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/option.h"
#include "harness/cli/page_files.h"
#include "harness/cli/serve_sim.h"
#include "harness/cli/usage_error.h"
#include "harness/config/trace_columns.h"
#include "harness/report/table.h"
#include "harness/results/text.h"
#include "harness/serving/step_history.h"
#include "harness/serving/trace_reader.h"

namespace attnbench::cli {
namespace {

constexpr int kLengthBins = 25;  // lengths are at most 2^24

struct TraceCommand {
  std::string file;
  PageFiles files;
  bool skip_bad = false;
  std::string columns;
};

struct TraceSummary {
  int64_t duration_ns = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  int64_t found_tokens = 0, distinct_blocks = 0;  ///< found: by a cache that evicts nothing
  Histogram prompt, output, gap_ns;
  std::array<int64_t, kLengthBins> prompts{};  ///< [i]: prompts of 2^i to 2^(i+1) - 1 tokens
};

TraceSummary summarize(TraceReader& reader) {
  TraceSummary t;
  std::unordered_set<uint64_t> known;
  Request r;
  for (int64_t last_ns = 0; r.prefix_hashes.clear(), reader(r); last_ns = r.arrival_ns) {
    if (t.prompt.count() > 0) t.gap_ns.add(r.arrival_ns - last_ns);
    t.duration_ns = r.arrival_ns;
    t.prompt.add(r.prompt_tokens);
    t.output.add(r.output_tokens);
    t.prompt_tokens += r.prompt_tokens;
    t.output_tokens += r.output_tokens;
    ++t.prompts[static_cast<std::size_t>(std::bit_width(static_cast<uint32_t>(r.prompt_tokens)) - 1)];
    // As in a server, the last token is computed even if its block is known.
    const auto most = static_cast<std::size_t>((r.prompt_tokens - 1) / reader.block_size());
    bool found = true;
    for (std::size_t i = 0; i < r.prefix_hashes.size(); ++i) {
      found = !known.insert(r.prefix_hashes[i]).second && found;
      if (found && i < most) t.found_tokens += reader.block_size();
    }
  }
  t.distinct_blocks = static_cast<int64_t>(known.size());
  return t;
}

constexpr std::pair<const char*, double> kTraceQuantiles[] = {
    {"p1", .01}, {"p10", .1}, {"p50", .5}, {"p90", .9}, {"p99", .99}};

double part_of(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void add_quantiles(const TraceSummary& t, StaticPage& page) {
  page.columns = {{.header = "of a request", .align = Align::kLeft}, {.header = "mean"}};
  for (const auto& [name, p] : kTraceQuantiles) page.columns.push_back({.header = name});
  page.columns.push_back({.header = "max"});
  const auto add = [&](const char* name, const Histogram& h, const auto& text) {
    TableRow row{.cells = {name, text(h.mean())}};
    for (const auto& [label, p] : kTraceQuantiles)
      row.cells.push_back(text(static_cast<double>(h.quantile(p))));
    row.cells.push_back(text(static_cast<double>(h.max())));
    page.rows.push_back(std::move(row));
  };
  const auto tokens = [](double n) { return grouped(std::llround(n)); };
  add("prompt tokens", t.prompt, tokens);
  add("output tokens", t.output, tokens);
  add("gap, ms", t.gap_ns, [](double ns) { return fmt::format("{:.4g}", ns * 1e-6); });
}

/// First and last bin with a prompt.
std::pair<int, int> used_bins(const TraceSummary& t) {
  int first = 0, last = kLengthBins - 1;
  while (first < last && t.prompts[static_cast<std::size_t>(first)] == 0) ++first;
  while (last > first && t.prompts[static_cast<std::size_t>(last)] == 0) --last;
  return {first, last};
}

void print_lengths(const TraceSummary& t) {
  constexpr double kWidth = 50;
  const int64_t most = *std::ranges::max_element(t.prompts);
  const auto [first, last] = used_bins(t);
  std::cout << "\nprompt tokens\n";
  for (int i = first; i <= last; ++i) {
    const int64_t n = t.prompts[static_cast<std::size_t>(i)];
    std::string bar;
    const auto width = std::lround(part_of(n, most) * kWidth);
    for (long j = 0; j < width; ++j) bar += "█";
    std::cout << fmt::format("{:>10} to {:>10}  {:>5.1f} %  {}\n", grouped(int64_t{1} << i),
                             grouped((int64_t{2} << i) - 1), 100 * part_of(n, t.prompt.count()), bar);
  }
}

/// What the terminal and the page both have.
StaticPage summary_page(const TraceCommand& o, const TraceReader& reader, const TraceSummary& t) {
  StaticPage page{.title = fmt::format("Trace {}", o.file)};
  const auto line = [&](const char* name, const std::string& text) { page.facts.emplace_back(name, text); };
  const double seconds = static_cast<double>(t.duration_ns) * 1e-9;
  line("trace", fmt::format("{}: {}", o.file, trace_form_name(reader.form())));
  line("requests", fmt::format("{}, {} prompt and {} output tokens", grouped(t.prompt.count()),
                               grouped(t.prompt_tokens), grouped(t.output_tokens)));
  line("duration", fmt::format("{:.6g} s", seconds));
  if (seconds > 0)
    line("rate", fmt::format("{:.4g} requests/s", static_cast<double>(t.gap_ns.count()) / seconds));
  if (t.distinct_blocks > 0) {
    line("prefix reuse", fmt::format("{:.1f} % of the prompt tokens, in a cache of blocks of {} tokens that "
                                     "evicts nothing; {} distinct blocks",
                                     100 * part_of(t.found_tokens, t.prompt_tokens), reader.block_size(),
                                     grouped(t.distinct_blocks)));
  } else {
    line("prefix reuse", "unknown: the trace names no shared prefix");
  }
  line("p1 to p99",
       "approximate: off by up to 1/64 (1.6 %), except below 128 tokens; mean and max are exact");
  if (!reader.note().empty()) line("note", one_line(reader.note()));
  add_quantiles(t, page);
  return page;
}

void print_summary(const StaticPage& page, const TraceSummary& t) {
  for (const auto& [name, text] : page.facts) {
    if (name != "note") std::cout << fmt::format("{:<13}{}\n", name, text);  // stderr has it
  }
  std::cout << '\n';
  print_table(std::cout, page.columns, page.rows, {});
  print_lengths(t);
}

using SummaryJson = nlohmann::ordered_json;

std::string summary_json(const TraceCommand& o, const TraceReader& reader, const TraceSummary& t) {
  const auto quantiles = [](const Histogram& h, double unit) {
    SummaryJson entry = {{"mean", h.mean() * unit}, {"max", static_cast<double>(h.max()) * unit}};
    for (const auto& [name, p] : kTraceQuantiles) entry[name] = static_cast<double>(h.quantile(p)) * unit;
    return entry;
  };
  const bool known = t.distinct_blocks > 0;
  SummaryJson bins = SummaryJson::array();
  const auto [first, last] = used_bins(t);
  for (int i = first; i <= last; ++i)
    bins.push_back({{"from", int64_t{1} << i}, {"prompts", t.prompts[static_cast<std::size_t>(i)]}});
  const SummaryJson all = {{"file", o.file},
                           {"form", trace_form_name(reader.form())},
                           {"requests", t.prompt.count()},
                           {"skipped_lines", reader.skipped()},
                           {"note", reader.note()},
                           {"duration_s", static_cast<double>(t.duration_ns) * 1e-9},
                           {"prompt_tokens", t.prompt_tokens},
                           {"output_tokens", t.output_tokens},
                           {"block_size", reader.block_size()},
                           {"found_tokens", known ? SummaryJson(t.found_tokens) : SummaryJson(nullptr)},
                           {"distinct_blocks", known ? SummaryJson(t.distinct_blocks) : SummaryJson(nullptr)},
                           {"prompt", quantiles(t.prompt, 1)},
                           {"output", quantiles(t.output, 1)},
                           {"gap_s", quantiles(t.gap_ns, 1e-9)},
                           {"prompt_lengths", bins}};
  return all.dump(1, ' ', false, SummaryJson::error_handler_t::replace) + "\n";
}

SvgChart summary_chart(const TraceCommand& o, const TraceSummary& t) {
  SvgChart chart;
  const auto [first, last] = used_bins(t);
  chart.title = fmt::format("Prompt lengths of {}", o.file);
  chart.description =
      fmt::format("{} requests: part of the prompts in each range from a power of two to the next",
                  grouped(t.prompt.count()));
  chart.x = {"prompt tokens", static_cast<double>(int64_t{1} << first),
             static_cast<double>(int64_t{2} << last), true, true};
  SvgSeries line{.label = "", .color = 0, .line = true};
  double most = 0;
  for (int i = first; i <= last; ++i) {
    const double percent = 100 * part_of(t.prompts[static_cast<std::size_t>(i)], t.prompt.count());
    most = std::max(most, percent);
    line.points.push_back({static_cast<double>(int64_t{1} << i), percent});
    line.points.push_back({static_cast<double>(int64_t{2} << i), percent});
  }
  chart.y = {"% of prompts", 0, most};
  chart.series.push_back(std::move(line));
  return chart;
}

int describe(const TraceCommand& o) {
  TraceOptions options;
  options.block_size = 0;
  options.skip_bad = o.skip_bad;
  if (!o.columns.empty()) read_trace_columns(o.columns, options.columns);
  TraceReader reader(o.file, options);
  o.files.check();
  const TraceSummary t = summarize(reader);
  if (!reader.note().empty()) std::cerr << one_line(reader.note()) << '\n';
  if (t.prompt.count() == 0) throw UsageError(fmt::format("{}: the trace has no request", o.file));
  StaticPage page = summary_page(o, reader, t);
  page.chart = summary_chart(o, t);
  print_summary(page, t);
  o.files.write(page, [&] { return summary_json(o, reader, t); });
  return 0;
}

}  // namespace

void add_trace(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("trace", "Describe a trace of requests: lengths, gaps, shared prefixes");
  auto o = std::make_shared<TraceCommand>();
  option(*command, "file", o->file, "FILE",
         "CSV or JSON lines in one of the forms of traces, packed by gzip or not")
      ->required();
  command->add_flag("--skip-bad", o->skip_bad, "Count lines that are wrong, and leave them out");
  add_columns_option(*command, o->columns);
  o->files.add(*command, "Write counts, quantiles and the histogram of prompt lengths",
               "Plot the histogram of prompt lengths");
  command->footer(
      "The form is known by the first line: CSV of Azure, BurstGPT, Vidur or SplitwiseSim, JSON lines of Mooncake.\n"
      "A plain CSV has the columns arrival (seconds or a date), prompt, output and, if prompts share prefixes,\n"
      "prefix: empty, or ID:TOKENS, such as 7:1024, for a prompt that begins with so many tokens of the prefix\n"
      "ID, a whole number. Quantiles are off by up to 1/64. Memory grows with the distinct blocks of shared\n"
      "prefixes alone. In a sweep, 'batch: {serving: {trace: FILE}}' times kernels on the steps of a server under it.\n"
      "Examples:\n"
      "  attnbench trace AzureLLMInferenceTrace_code.csv --svg prompts.svg\n"
      "  attnbench trace conversation_trace.jsonl.gz --json trace.json\n"
      "  attnbench trace mine.csv --columns 'arrival=sent at,prompt=input tokens,output=output tokens'");
  command->callback([=, &program] { program.chosen = [=] { return describe(*o); }; });
}

}  // namespace attnbench::cli
