// What serve-sim prints and writes.
#include "harness/cli/serve_sim.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "harness/cli/common.h"

namespace attnbench::cli {

namespace {

using Json = nlohmann::ordered_json;

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double ratio(int64_t part, int64_t whole) {
  return ratio(static_cast<double>(part), static_cast<double>(whole));
}

/// Parts, 0 to 1, of some steps.
struct Levels {
  double occupancy = 0;      ///< owned blocks of all blocks
  double fragmentation = 0;  ///< slots of owned blocks that hold no token
  double budget = 0;         ///< query tokens of the token budget
};

Levels levels_of(const HistorySlice& s, const SimOptions& o) {
  return {ratio(s.owned_blocks, s.steps * (o.server.cache_tokens / o.block_size)),
          ratio(s.unfilled_tokens, s.owned_blocks * o.block_size),
          ratio(s.query_tokens, s.steps * o.server.token_budget)};
}

std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }

/// A character for each of up to 60 columns, each the mean of its steps, from 0 to the greatest of them, which is printed behind.
std::string sparkline(const StepHistory& history, const SimOptions& o, double Levels::*level) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::size_t kColumns = 60;
  const std::vector<HistorySlice>& slices = history.slices();
  const std::size_t columns = std::min(kColumns, slices.size());
  std::vector<double> values;
  for (std::size_t c = 0; c < columns; ++c) {
    HistorySlice sum;
    for (std::size_t i = c * slices.size() / columns; i < (c + 1) * slices.size() / columns; ++i)
      sum.add(slices[i]);
    values.push_back(levels_of(sum, o).*level);
  }
  const double most = values.empty() ? 0 : *std::ranges::max_element(values);
  std::string line;
  for (const double v : values) line += kBars[std::clamp(static_cast<int>(ratio(v, most) * 8), 0, 7)];
  return fmt::format("{}  up to {}", line, percent_text(most));
}

/// The histograms of a replay by name.
std::vector<std::pair<const char*, const Histogram*>> histograms_of(const StepHistory& history) {
  return {{"sequences", &history.sequences},
          {"decoding", &history.decodes},
          {"query tokens", &history.query_tokens},
          {"context tokens", &history.context_tokens}};
}

constexpr std::pair<const char*, double> kQuantiles[] = {{"p1", .01}, {"p50", .5}, {"p90", .9}, {"p99", .99}};

Json options_json(const SimOptions& o, const Asked& asked) {
  return {{o.is_trace ? "trace" : "mix", o.source},
          {"requests", asked.requests},
          {"rate", o.is_trace ? Json(nullptr) : Json(o.server.rate)},
          {"speed_up", o.is_trace ? Json(o.server.speed_up) : Json(nullptr)},
          {"columns", o.is_trace ? Json(o.server.columns) : Json(nullptr)},
          {"skipped_lines", asked.skipped_lines},
          {"note", asked.note},
          {"block_size", o.block_size},
          {"cache_tokens", o.server.cache_tokens},
          {"token_budget", o.server.token_budget},
          {"max_sequences", o.server.max_sequences},
          {"chunked_prefill", o.server.chunked_prefill},
          {"preemption", o.server.preemption},
          {"draft_tokens", o.server.draft_tokens},
          {"acceptance", o.server.draft_tokens > 0 ? Json(o.server.acceptance) : Json(nullptr)},
          {"free_order", o.server.free_order},
          {"step_ms", o.server.step_ms},
          {"token_us", o.server.token_us},
          {"seed", o.server.seed}};
}

void add_totals(const SimOptions& o, const Asked& asked, const Scheduler& s, const StepHistory& history,
                StaticPage& page) {
  const SchedulerTotals& t = s.totals();
  const double seconds = static_cast<double>(s.now_ns()) * 1e-9;  // idle time included
  const double busy = static_cast<double>(history.total().duration_ns) * 1e-9;
  const Levels mean = levels_of(history.total(), o);
  const auto line = [&](const char* name, const std::string& text) { page.facts.emplace_back(name, text); };
  const auto rates = [&](double of) {
    const auto per_s = [&](int64_t n) { return fmt::format("{:.4g}", ratio(static_cast<double>(n), of)); };
    return fmt::format("{} steps/s, {} query tokens/s, {} output tokens/s, {} requests/s", per_s(t.steps),
                       per_s(t.query_tokens), per_s(asked.output_tokens), per_s(t.finished));
  };
  line(o.is_trace ? "trace" : "mix", fmt::format("{}: {}", o.source, asked.description));
  line("requests", fmt::format("{}, {} prompt and {} output tokens", grouped(asked.requests),
                               grouped(asked.prompt_tokens), grouped(asked.output_tokens)));
  line("steps", fmt::format("{}: {} decode only, {} prefill only, {} mixed", grouped(t.steps),
                            grouped(history.decode_steps), grouped(history.prefill_steps),
                            grouped(history.mixed_steps)));
  const std::string of_it = busy < seconds ? fmt::format(", {:.4g} s of it busy", busy) : "";
  line("model time", fmt::format("{:.4g} s{} with {:g} ms a step and {:g} us a query token", seconds, of_it,
                                 o.server.step_ms, o.server.token_us));
  line("rates", rates(seconds));
  if (busy < seconds) line("while busy", rates(busy));
  line("cache", fmt::format("{} blocks of {} tokens, {} occupied, {} of that unfilled (means over steps)",
                            grouped(o.server.cache_tokens / o.block_size), o.block_size,
                            percent_text(mean.occupancy), percent_text(mean.fragmentation)));
  line("prefix hits", fmt::format("{} tokens, {} of the prompts; a preempted sequence counts again",
                                  grouped(t.prefix_hit_tokens),
                                  percent_text(ratio(t.prefix_hit_tokens, asked.prompt_tokens))));
  line("preemptions", fmt::format("{}; {} tokens computed again, {} blocks swapped out, {} in",
                                  grouped(t.preempted), grouped(t.recomputed_tokens),
                                  grouped(t.swapped_out_blocks), grouped(t.swapped_in_blocks)));
  if (o.server.draft_tokens > 0) {
    line("drafts", fmt::format("{} checked, {} accepted", grouped(t.draft_tokens),
                               percent_text(ratio(t.accepted_tokens, t.draft_tokens))));
  }
  line("evictions", fmt::format("{} blocks; up to {} requests waited, of at most {} that are read ahead",
                                grouped(s.cache().counters().evictions), grouped(history.most_waiting),
                                grouped(SchedulerOptions{}.max_waiting)));
}

void add_batches(const StepHistory& history, StaticPage& page) {
  page.columns = {{.header = "of a step", .align = Align::kLeft}, {.header = "mean"}};
  for (const auto& [name, p] : kQuantiles) page.columns.push_back({.header = name});
  page.columns.push_back({.header = "max"});
  for (const auto& [name, h] : histograms_of(history)) {
    const bool each = h == &history.context_tokens;
    TableRow row{.cells = {each ? "context of a sequence" : name, fmt::format("{:.1f}", h->mean())}};
    for (const auto& [label, p] : kQuantiles) row.cells.push_back(grouped(h->quantile(p)));
    row.cells.push_back(grouped(h->max()));
    page.rows.push_back(std::move(row));
  }
}

SvgChart replay_chart(const SimOptions& o, const Asked& asked, const StepHistory& history) {
  SvgChart chart;
  chart.title = fmt::format("Replay of {}", o.source);
  chart.description =
      fmt::format("{} requests: occupied part of the cache, unfilled part of that, query tokens",
                  grouped(asked.requests));
  chart.y = {"%", 0, 100};
  chart.legend = {"cache occupied", "of it unfilled", "token budget used"};
  const std::vector<HistorySlice>& slices = history.slices();
  double Levels::*const levels[] = {&Levels::occupancy, &Levels::fragmentation, &Levels::budget};
  double end = 0;
  for (int i = 0; i < 3; ++i) {
    SvgSeries line{.label = "", .color = i, .line = true};
    for (const HistorySlice& s : slices) {
      end = static_cast<double>(s.start_ns) * 1e-9;
      line.points.push_back({end, 100 * (levels_of(s, o).*levels[i])});
    }
    chart.series.push_back(std::move(line));
  }
  chart.x = {"time, s", 0, std::max(end, 1e-3)};
  return chart;
}

}  // namespace

StaticPage replay_page(const SimOptions& o, const Asked& asked, const Scheduler& s,
                       const StepHistory& history) {
  StaticPage page{.title = fmt::format("Replay of {}", o.source)};
  add_totals(o, asked, s, history, page);
  add_batches(history, page);
  page.chart = replay_chart(o, asked, history);
  return page;
}

void print_replay(const SimOptions& o, const StaticPage& page, const StepHistory& history) {
  for (const auto& [name, text] : page.facts) std::cout << fmt::format("{:<15}{}\n", name, text);
  std::cout << '\n';
  print_table(std::cout, page.columns, page.rows, {});
  std::cout << "\nover the replay, each column the mean of some steps, from 0 to the greatest column\n";
  const auto line = [&](const char* name, double Levels::*level) {
    std::cout << fmt::format("{:<15}{}\n", name, sparkline(history, o, level));
  };
  line("cache occupied", &Levels::occupancy);
  line("of it unfilled", &Levels::fragmentation);
  line("budget used", &Levels::budget);
}

std::string replay_json(const SimOptions& o, const Asked& asked, const Scheduler& s,
                        const StepHistory& history) {
  const SchedulerTotals& t = s.totals();
  Json histograms, slices = Json::array();
  for (const auto& [name, h] : histograms_of(history)) {
    Json entry = {{"mean", h->mean()}, {"max", h->max()}};
    for (const auto& [label, p] : kQuantiles) entry[label] = h->quantile(p);
    histograms[name] = entry;
  }
  for (const HistorySlice& r : history.slices()) {
    const Levels levels = levels_of(r, o);
    slices.push_back({{"start_s", static_cast<double>(r.start_ns) * 1e-9},
                      {"steps", r.steps},
                      {"query_tokens", r.query_tokens},
                      {"decode_tokens", r.decode_tokens},
                      {"occupancy", levels.occupancy},
                      {"fragmentation", levels.fragmentation},
                      {"preempted", r.preempted}});
  }
  const Levels mean = levels_of(history.total(), o);
  const Json all = {{"options", options_json(o, asked)},
                    {"prompt_tokens", asked.prompt_tokens},
                    {"output_tokens", asked.output_tokens},
                    {"steps", t.steps},
                    {"decode_steps", history.decode_steps},
                    {"prefill_steps", history.prefill_steps},
                    {"mixed_steps", history.mixed_steps},
                    {"model_s", static_cast<double>(s.now_ns()) * 1e-9},
                    {"busy_s", static_cast<double>(history.total().duration_ns) * 1e-9},
                    {"query_tokens", t.query_tokens},
                    {"recomputed_tokens", t.recomputed_tokens},
                    {"prefix_hit_tokens", t.prefix_hit_tokens},
                    {"checked_drafts", t.draft_tokens},
                    {"accepted_drafts", t.accepted_tokens},
                    {"preempted", t.preempted},
                    {"swapped_out_blocks", t.swapped_out_blocks},
                    {"swapped_in_blocks", t.swapped_in_blocks},
                    {"evicted_blocks", s.cache().counters().evictions},
                    {"occupancy", mean.occupancy},
                    {"fragmentation", mean.fragmentation},
                    {"of_a_step", histograms},
                    {"slices", slices}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace attnbench::cli
