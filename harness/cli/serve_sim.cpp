#include "harness/cli/serve_sim.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/option.h"
#include "harness/cli/usage_error.h"
#include "harness/config/mixes.h"
#include "harness/config/serving_value.h"
#include "harness/config/trace_columns.h"
#include "harness/results/text.h"
#include "harness/serving/request_source.h"
#include "harness/serving/server_options.h"

namespace attnbench::cli {
namespace {

constexpr double kMostBlocks = 1 << 26;  // the lists of blocks then take about 3 GB
constexpr int64_t kMixRequests = 10000;

/// Which options were given.
struct Given {
  bool acceptance = false, rate = false, speed_up = false, skip_bad = false, columns = false;
};

const Mix& mix_of(const SimOptions& o) {
  const Mix* mix = find_mix(o.source);
  if (mix != nullptr) return *mix;
  throw UsageError(fmt::format("unknown mix '{}'; {}there are {}; the name of a trace has a dot or a slash",
                               one_line(o.source), did_you_mean(o.source, mix_names()),
                               fmt::join(mix_names(), ", ")));
}

void check_options(const SimOptions& o, const Given& given) {
  const ServingSpec& s = o.server;
  if (given.acceptance && s.draft_tokens == 0) {
    throw UsageError(
        "--acceptance is of draft tokens, and there are none; add --draft-tokens 3, for example");
  }
  if (o.is_trace && given.rate)
    throw UsageError("--rate is for mixes, and a trace has times of its own; give --speed-up 2, for example");
  if (!o.is_trace && given.speed_up)
    throw UsageError("--speed-up is for traces, and a mix has no times; give --rate 20, for example");
  if (!o.is_trace && given.skip_bad)
    throw UsageError("--skip-bad is for traces, and a mix has no lines; leave it out");
  if (!o.is_trace && given.columns)
    throw UsageError("--columns is for traces, and a mix has no columns; leave it out");
  if (s.rate > 0 && s.rate < 1e-6)
    throw UsageError(fmt::format("--rate {}: 0 or at least 1e-6 requests per second are supported", s.rate));
  const int64_t blocks = s.cache_tokens / o.block_size;
  if (static_cast<double>(blocks) > kMostBlocks) {
    throw UsageError(
        fmt::format("--cache-tokens {} makes {} blocks of {} tokens, at most {} are supported; "
                    "give fewer tokens or a larger --block-size",
                    s.cache_tokens, blocks, o.block_size, static_cast<int64_t>(kMostBlocks)));
  }
}

/// Errors that name the option, before the simulation meets the request that does not fit.
void check_mix(const SimOptions& o, const Mix& mix) {
  const ServingSpec& s = o.server;
  const bool appends = mix.prefixes.kind == PrefixSharing::Kind::kAppend;
  const int64_t prompt = appends ? mix.prefixes.last : mix.prompt.clip_hi;
  const int64_t longest = prompt + mix.output.clip_hi + o.block_size;
  if (s.cache_tokens < longest) {
    throw UsageError(
        fmt::format("--cache-tokens {} is too little for the longest request of {}; give {} or more",
                    s.cache_tokens, mix.name, longest));
  }
  if (!s.chunked_prefill && s.token_budget < prompt) {
    throw UsageError(
        fmt::format("--no-chunked-prefill computes a prompt in one step, and {} has prompts of up to {} "
                    "tokens; give --token-budget {} or leave --no-chunked-prefill out",
                    mix.name, prompt, prompt));
  }
}

/// Puts the source into the server's spec. Errors name the option.
void take_source(SimOptions& o) {
  if (o.is_trace) {
    o.server.trace = o.source;
    return;
  }
  check_mix(o, mix_of(o));
  o.server.mix = o.source;
}

int simulate(SimOptions o, const Given& given) {
  o.is_trace = o.source.find_first_of("./") != std::string::npos;
  if (o.requests == 0 && !o.is_trace) o.requests = kMixRequests;
  check_options(o, given);
  take_source(o);
  RequestSource source(o.server, o.block_size, "--skip-bad");
  o.files.check();
  Asked asked;
  asked.description = source.trace() ? trace_form_name(source.trace()->form()) : mix_of(o).description;
  const auto begin = std::chrono::steady_clock::now();
  Scheduler scheduler(cache_options(o.server, o.block_size), scheduler_options(o.server), [&](Request& r) {
    if ((o.requests > 0 && asked.requests == o.requests) || !source(r)) return false;
    ++asked.requests;
    asked.prompt_tokens += r.prompt_tokens;
    asked.output_tokens += r.output_tokens;
    return true;
  });
  StepHistory history;
  while (const Step* step = scheduler.next()) history.add(*step);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  asked.skipped_lines = source.trace() ? source.trace()->skipped() : 0;
  asked.note = source.trace() ? source.trace()->note() : "";
  if (!asked.note.empty()) std::cerr << one_line(asked.note) << '\n';
  if (asked.requests == 0) throw UsageError(fmt::format("{}: the trace has no request", o.source));
  const StaticPage page = replay_page(o, asked, scheduler, history);
  print_replay(o, page, history);
  std::cout << fmt::format("\nplanned in {:.1f} s\n", took.count());
  o.files.write(page, [&] { return replay_json(o, asked, scheduler, history); });
  return 0;
}

}  // namespace

CLI::Option* add_columns_option(CLI::App& command, std::string& columns) {
  return option(
             command, "--columns", columns, "PART=NAME,...",
             "Names of a trace's columns, or fields, that differ from those of its form; the parts are arrival "
             "(seconds or a date), prompt, output and prefix")
      ->check([](const std::string& text) {
        TraceColumns read;
        return read_trace_columns(text, read);
      });
}

void add_serve_sim(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand(
      "serve-sim", "Simulate a server's steps and KV cache under a mix or a trace of requests");
  auto o = std::make_shared<SimOptions>();
  ServingSpec& s = o->server;
  const auto with_default = [&](const char* names, auto& value, const char* text, const char* type) {
    return option(*command, names, value, type, text)->capture_default_str();
  };
  /// An option that a sweep has as a key, with its range.
  const auto keyed = [&](const char* key, const char* names, auto& value, const char* text,
                         const char* type) {
    const auto [lo, hi] = serving_range(key);
    return with_default(names, value, text, type)->check(number_in(lo, hi));
  };
  option(*command, "source", o->source, "MIX|FILE",
         "Requests: a mix (attnbench list --mixes shows them) or the file of a trace (attnbench trace)")
      ->required();
  option(*command, "--requests", o->requests, "N",
         "Requests to simulate, at most; default: 10000 of a mix, all of a trace")
      ->check(number_in(1, 1e12));
  auto* rate = keyed("rate", "--rate", s.rate,
                     "Requests per second of a mix, as a Poisson process; 0: all arrive at once", "R");
  auto* speed_up = keyed("speed_up", "--speed-up", s.speed_up, "Divide the times of a trace by this", "X");
  auto* skip_bad = command->add_flag("--skip-bad", s.skip_bad,
                                     "Leave out lines of a trace that are wrong or do not fit the cache");
  auto* columns = add_columns_option(*command, s.columns);
  with_default("--block-size", o->block_size, "Tokens of a block of the KV cache", "N")
      ->check(number_in(1, 1 << 20));
  keyed("cache_tokens", "--cache-tokens", s.cache_tokens, "Tokens that the KV cache holds", "N");
  keyed("token_budget", "--token-budget", s.token_budget, "Query tokens of a step, at most", "N");
  keyed("max_sequences", "--max-sequences", s.max_sequences, "Sequences that run at a time, at most", "N");
  command->add_flag_callback(
      "--no-chunked-prefill", [o] { o->server.chunked_prefill = false; }, "Compute each prompt in one step");
  command->add_flag_callback(
      "--no-prefix-sharing", [o] { o->server.prefix_sharing = false; },
      "Prompts share no blocks of equal prefixes");
  with_default("--preemption", s.preemption,
               "What a sequence without a free block costs another one: recompute or swap", "HOW")
      ->check(CLI::IsMember(serving_words("preemption")));
  keyed("draft_tokens", "--draft-tokens", s.draft_tokens,
        "Speculative decoding: drafts that a decode step checks", "K");
  auto* acceptance =
      keyed("acceptance", "--acceptance", s.acceptance, "Probability that a draft is right", "P");
  with_default("--free-order", s.free_order, "Which free block is taken first: lifo, fifo or lowest", "ORDER")
      ->check(CLI::IsMember(serving_words("free_order")));
  keyed("step_ms", "--step-ms", s.step_ms, "Model of time: milliseconds of a step", "MS");
  keyed("token_us", "--token-us", s.token_us, "Model of time: microseconds of a query token", "US");
  with_default("--seed", s.seed, "Seed of lengths, arrivals and acceptance", "N");
  o->files.add(*command, "Write options, totals and up to 480 slices of the replay",
               "Plot occupancy, unfilled slots and query tokens over time");
  command->footer(
      "No kernel runs: times come from --step-ms and --token-us. The same options give the same steps on every\n"
      "machine. Memory does not grow with the number of requests. The options of the server have the names, the\n"
      "ranges and the defaults of the key `serving` of a sweep.\n"
      "Examples:\n"
      "  attnbench serve-sim azure_conv_2023\n"
      "  attnbench serve-sim mooncake_conv --rate 2 --cache-tokens 2000000 --svg replay.svg\n"
      "  attnbench serve-sim sharegpt --draft-tokens 3 --acceptance 0.6\n"
      "  attnbench serve-sim ./AzureLLMInferenceTrace_conv.csv --speed-up 2 --skip-bad");
  command->callback([=, &program] {
    const Given given{acceptance->count() > 0, rate->count() > 0, speed_up->count() > 0,
                      skip_bad->count() > 0, columns->count() > 0};
    program.chosen = [=] { return simulate(*o, given); };
  });
}

}  // namespace attnbench::cli
