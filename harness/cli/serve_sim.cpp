#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/usage_error.h"
#include "harness/config/mixes.h"
#include "harness/record/files.h"
#include "harness/record/text.h"
#include "harness/report/html/svg_canvas.h"
#include "harness/report/table.h"
#include "harness/serving/mix_requests.h"
#include "harness/serving/scheduler.h"
#include "harness/serving/step_history.h"

namespace attnbench::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostBlocks = 1 << 26;  // the lists of blocks then take about 3 GB
constexpr double kMostTokens = 2147483647;

const std::map<std::string, FreeOrder> kFreeOrders = {
    {"lifo", FreeOrder::kLifo}, {"fifo", FreeOrder::kFifo}, {"lowest", FreeOrder::kLowest}};
const std::map<std::string, Preemption> kPreemptions = {{"recompute", Preemption::kRecompute},
                                                        {"swap", Preemption::kSwap}};

struct SimOptions {
  std::string mix;
  int64_t requests = 10000;
  double rate = 0;
  int32_t block_size = 16;
  int64_t cache_tokens = 1 << 19;
  int32_t token_budget = 8192, max_sequences = 256;
  bool no_chunked_prefill = false;
  std::string preemption = "recompute", free_list = "lifo";
  int32_t draft_tokens = 0;
  double acceptance = 0.7;
  bool acceptance_given = false;
  double step_us = 4000, token_us = 3;
  uint64_t seed = 1;
  std::string json, svg;
};

/// What the scheduler does not know of the requests.
struct Asked {
  int64_t requests = 0, prompt_tokens = 0, output_tokens = 0;
};

const Mix& mix_of(const SimOptions& o) {
  const Mix* mix = find_mix(o.mix);
  if (mix != nullptr) return *mix;
  throw UsageError(fmt::format("unknown mix '{}'; {}there are {}", one_line(o.mix),
                               did_you_mean(o.mix, mix_names()), fmt::join(mix_names(), ", ")));
}

/// Errors that name the option, before the simulation meets the request that does not fit.
void check_simulation(const SimOptions& o, const Mix& mix) {
  if (o.acceptance_given && o.draft_tokens == 0)
    throw UsageError(
        "--acceptance is of draft tokens, and there are none; add --draft-tokens 3, for example");
  if (o.rate > 0 && o.rate < 1e-6)
    throw UsageError(fmt::format("--rate {}: 0 or at least 1e-6 requests per second are supported", o.rate));
  const int64_t blocks = o.cache_tokens / o.block_size;
  if (static_cast<double>(blocks) > kMostBlocks) {
    throw UsageError(
        fmt::format("--cache-tokens {} makes {} blocks of {} tokens, at most {} are supported; "
                    "give fewer tokens or a larger --block-size",
                    o.cache_tokens, blocks, o.block_size, static_cast<int64_t>(kMostBlocks)));
  }
  const bool appends = mix.prefixes.kind == PrefixSharing::Kind::kAppend;
  const int64_t prompt = appends ? mix.prefixes.last : mix.prompt.clip_hi;
  const int64_t longest = prompt + mix.output.clip_hi + o.block_size;
  if (o.cache_tokens < longest) {
    throw UsageError(
        fmt::format("--cache-tokens {} is too little for the longest request of {}; give {} or more",
                    o.cache_tokens, mix.name, longest));
  }
  if (o.no_chunked_prefill && o.token_budget < prompt) {
    throw UsageError(
        fmt::format("--no-chunked-prefill computes a prompt in one step, and {} has prompts of up to {} "
                    "tokens; give --token-budget {} or leave --no-chunked-prefill out",
                    mix.name, prompt, prompt));
  }
}

/// "12,345".
std::string grouped(int64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<int64_t>(s.size()) - 3; i > 0; i -= 3) s.insert(static_cast<std::size_t>(i), ",");
  return s;
}

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
  return {ratio(s.owned_blocks, s.steps * (o.cache_tokens / o.block_size)),
          ratio(s.unfilled_tokens, s.owned_blocks * o.block_size),
          ratio(s.query_tokens, s.steps * o.token_budget)};
}

std::string percent_text(double part) { return fmt::format("{:.1f} %", 100 * part); }

/// A character for each of up to 60 columns, from 0 to the greatest level, which is printed behind them.
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
  const double most = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  std::string line;
  for (const double v : values) line += kBars[std::clamp(static_cast<int>(ratio(v, most) * 8), 0, 7)];
  return fmt::format("{}  max {}", line, percent_text(most));
}

void print_totals(const SimOptions& o, const Mix& mix, const Asked& asked, const Scheduler& s,
                  const StepHistory& history) {
  const SchedulerTotals& t = s.totals();
  const double seconds = static_cast<double>(history.total().duration_ns) * 1e-9;
  const Levels mean = levels_of(history.total(), o);
  const auto line = [](const char* name, const std::string& text) {
    std::cout << fmt::format("{:<15}{}\n", name, text);
  };
  const auto per_s = [&](int64_t n) { return fmt::format("{:.4g}", ratio(static_cast<double>(n), seconds)); };
  line("mix", fmt::format("{}: {}", mix.name, mix.description));
  line("requests", fmt::format("{}, {} prompt and {} output tokens", grouped(asked.requests),
                               grouped(asked.prompt_tokens), grouped(asked.output_tokens)));
  line("steps", fmt::format("{}: {} decode only, {} prefill only, {} mixed", grouped(t.steps),
                            grouped(history.decode_steps), grouped(history.prefill_steps),
                            grouped(history.mixed_steps)));
  line("model time",
       fmt::format("{:.4g} s with {:g} us a step and {:g} us a query token", seconds, o.step_us, o.token_us));
  line("rates",
       fmt::format("{} steps/s, {} query tokens/s, {} output tokens/s, {} requests/s", per_s(t.steps),
                   per_s(t.query_tokens), per_s(asked.output_tokens), per_s(t.finished)));
  line("cache", fmt::format("{} blocks of {} tokens, {} occupied, {} of that unfilled (means over steps)",
                            grouped(o.cache_tokens / o.block_size), o.block_size,
                            percent_text(mean.occupancy), percent_text(mean.fragmentation)));
  line("prefix hits", fmt::format("{} tokens, {} of the prompts; a preempted sequence counts again",
                                  grouped(t.prefix_hit_tokens),
                                  percent_text(ratio(t.prefix_hit_tokens, asked.prompt_tokens))));
  line("preemptions", fmt::format("{}; {} tokens computed again, {} blocks swapped out, {} in",
                                  grouped(t.preempted), grouped(t.recomputed_tokens),
                                  grouped(t.swapped_out_blocks), grouped(t.swapped_in_blocks)));
  if (o.draft_tokens > 0) {
    line("drafts", fmt::format("{} checked, {} accepted", grouped(t.draft_tokens),
                               percent_text(ratio(t.accepted_tokens, t.draft_tokens))));
  }
  line("evictions", fmt::format("{} blocks; {} requests waited at most",
                                grouped(s.cache().counters().evictions), grouped(history.most_waiting)));
}

/// The histograms of a replay by name.
std::vector<std::pair<const char*, const Histogram*>> histograms_of(const StepHistory& history) {
  return {{"sequences", &history.sequences},
          {"decoding", &history.decodes},
          {"query tokens", &history.query_tokens},
          {"context tokens", &history.context_tokens}};
}

constexpr std::pair<const char*, double> kQuantiles[] = {{"p1", .01}, {"p50", .5}, {"p90", .9}, {"p99", .99}};

void print_batches(const SimOptions& o, const StepHistory& history) {
  std::vector<TableColumn> columns = {{.header = "of a step", .align = Align::kLeft}, {.header = "mean"}};
  for (const auto& [name, p] : kQuantiles) columns.push_back({.header = name});
  columns.push_back({.header = "max"});
  std::vector<TableRow> rows;
  for (const auto& [name, h] : histograms_of(history)) {
    const bool each = h == &history.context_tokens;
    TableRow row{.cells = {each ? "context of a sequence" : name, fmt::format("{:.1f}", h->mean())}};
    for (const auto& [label, p] : kQuantiles) row.cells.push_back(grouped(h->quantile(p)));
    row.cells.push_back(grouped(h->max()));
    rows.push_back(std::move(row));
  }
  std::cout << '\n';
  print_table(std::cout, columns, rows, {});
  std::cout << "\nover the replay, each line from 0 to its maximum\n";
  const auto line = [&](const char* name, double Levels::*level) {
    std::cout << fmt::format("{:<15}{}\n", name, sparkline(history, o, level));
  };
  line("cache occupied", &Levels::occupancy);
  line("of it unfilled", &Levels::fragmentation);
  line("budget used", &Levels::budget);
}

Json options_json(const SimOptions& o) {
  return {{"mix", o.mix},
          {"requests", o.requests},
          {"rate", o.rate},
          {"block_size", o.block_size},
          {"cache_tokens", o.cache_tokens},
          {"token_budget", o.token_budget},
          {"max_sequences", o.max_sequences},
          {"chunked_prefill", !o.no_chunked_prefill},
          {"preemption", o.preemption},
          {"draft_tokens", o.draft_tokens},
          {"acceptance", o.draft_tokens > 0 ? Json(o.acceptance) : Json(nullptr)},
          {"free_list", o.free_list},
          {"step_us", o.step_us},
          {"token_us", o.token_us},
          {"seed", o.seed}};
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
  const Json all = {{"options", options_json(o)},
                    {"prompt_tokens", asked.prompt_tokens},
                    {"output_tokens", asked.output_tokens},
                    {"steps", t.steps},
                    {"decode_steps", history.decode_steps},
                    {"prefill_steps", history.prefill_steps},
                    {"mixed_steps", history.mixed_steps},
                    {"model_s", static_cast<double>(history.total().duration_ns) * 1e-9},
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
  return all.dump(1) + "\n";
}

std::string replay_svg(const SimOptions& o, const StepHistory& history) {
  SvgChart chart;
  chart.title = fmt::format("StepHistory of {}", o.mix);
  chart.description = fmt::format(
      "{} requests: occupied part of the cache, unfilled part of that, query tokens", grouped(o.requests));
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
  return write_svg(chart);
}

int simulate(const SimOptions& o) {
  const Mix& mix = mix_of(o);
  check_simulation(o, mix);
  for (const std::string& file : {o.json, o.svg}) {
    if (!file.empty()) check_writable(file);
  }
  MixRequests requests(mix, o.rate, o.block_size, o.seed);
  Asked asked;
  SchedulerOptions options;
  options.token_budget = o.token_budget;
  options.max_sequences = o.max_sequences;
  options.chunked_prefill = !o.no_chunked_prefill;
  options.preemption = kPreemptions.at(o.preemption);
  options.draft_tokens = o.draft_tokens;
  options.acceptance = o.acceptance;
  options.seed = o.seed;
  options.step_ns = std::llround(o.step_us * 1e3);
  options.token_ps = std::llround(o.token_us * 1e6);
  const auto begin = std::chrono::steady_clock::now();
  Scheduler scheduler({.num_blocks = static_cast<int32_t>(o.cache_tokens / o.block_size),
                       .block_size = o.block_size,
                       .free_order = kFreeOrders.at(o.free_list)},
                      options, [&](Request& r) {
                        if (asked.requests == o.requests) return false;
                        requests(r);
                        ++asked.requests;
                        asked.prompt_tokens += r.prompt_tokens;
                        asked.output_tokens += r.output_tokens;
                        return true;
                      });
  StepHistory history;
  while (const Step* step = scheduler.next()) history.add(*step);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  print_totals(o, mix, asked, scheduler, history);
  print_batches(o, history);
  std::cout << fmt::format("\nplanned in {:.1f} s\n", took.count());
  if (!o.json.empty()) {
    write_file_atomically(o.json, replay_json(o, asked, scheduler, history));
    std::cout << "report: " << o.json << '\n';
  }
  if (!o.svg.empty()) {
    write_file_atomically(o.svg, replay_svg(o, history));
    std::cout << "report: " << o.svg << '\n';
  }
  return 0;
}

template <class Map>
std::vector<std::string> keys_of(const Map& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

}  // namespace

void add_serve_sim(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("serve-sim", "Simulate a server's steps and KV cache under a mix of requests");
  auto o = std::make_shared<SimOptions>();
  const auto number = [&](const char* names, auto& value, const char* text, double lo, double hi,
                          const char* type) {
    return command->add_option(names, value, text)
        ->type_name(type)
        ->capture_default_str()
        ->check(number_in(lo, hi));
  };
  command->add_option("mix", o->mix, "Requests to draw; attnbench list --mixes shows them")
      ->type_name("MIX")
      ->required();
  number("--requests", o->requests, "Requests to simulate", 1, 1e12, "N");
  number("--rate", o->rate, "Requests per second, as a Poisson process; 0: all arrive at once", 0, 1e9, "R");
  number("--block-size", o->block_size, "Tokens of a block of the KV cache", 1, 1 << 20, "N");
  number("--cache-tokens", o->cache_tokens, "Tokens that the KV cache holds", 1, kMostTokens, "N");
  number("--token-budget", o->token_budget, "Query tokens of a step, at most", 1, kMostTokens, "N");
  number("--max-sequences", o->max_sequences, "Sequences that run at a time, at most", 1, 1 << 20, "N");
  command->add_flag("--no-chunked-prefill", o->no_chunked_prefill, "Compute each prompt in one step");
  command
      ->add_option("--preemption", o->preemption,
                   "What a sequence without a free block costs another one: recompute or swap")
      ->type_name("HOW")
      ->capture_default_str()
      ->check(CLI::IsMember(keys_of(kPreemptions)));
  number("--draft-tokens", o->draft_tokens, "Speculative decoding: drafts that a decode step checks", 0, 1024,
         "K");
  auto* acceptance = number("--acceptance", o->acceptance, "Probability that a draft is right", 0, 1, "P");
  command->add_option("--free-list", o->free_list, "Which free block is taken first: lifo, fifo or lowest")
      ->type_name("ORDER")
      ->capture_default_str()
      ->check(CLI::IsMember(keys_of(kFreeOrders)));
  number("--step-us", o->step_us, "Model of time: microseconds of a step", 0, 1e9, "US");
  number("--token-us", o->token_us, "Model of time: microseconds of a query token", 0, 1e6, "US");
  command->add_option("--seed", o->seed, "Seed of lengths, arrivals and acceptance")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--json", o->json, "Write options, totals and up to 480 slices of the replay")
      ->type_name("FILE")
      ->check(has_a_name);
  command->add_option("--svg", o->svg, "Plot occupancy, unfilled slots and query tokens over time")
      ->type_name("FILE")
      ->check(has_a_name);
  command->footer(
      "No kernel runs: times come from --step-us and --token-us. The same options give the same steps on every\n"
      "machine. Memory does not grow with --requests.\n"
      "Examples:\n"
      "  attnbench serve-sim azure_conv_2023\n"
      "  attnbench serve-sim mooncake_conv --rate 2 --cache-tokens 2000000 --svg replay.svg\n"
      "  attnbench serve-sim sharegpt --draft-tokens 3 --acceptance 0.6");
  command->callback([=, &program] {
    o->acceptance_given = acceptance->count() > 0;
    program.chosen = [=] { return simulate(*o); };
  });
}

}  // namespace attnbench::cli
