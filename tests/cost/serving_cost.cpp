// Cost of planning a server's steps, on one core: the KV cache manager, the scheduler, and readers of traces.
//
//   attnbench_serving_cost --benchmark_out=FILE.json --benchmark_out_format=json
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "harness/config/mixes.h"
#include "harness/serving/kv_cache.h"
#include "harness/serving/mix_requests.h"
#include "harness/serving/scheduler.h"
#include "harness/serving/server_options.h"
#include "harness/serving/trace_reader.h"

namespace attnbench {
namespace {

/// One token for each of 256 sequences in turn, as decode steps do. They start at different offsets in a block,
/// and are freed and allocated again when the cache is full, in the time that is measured.
void append(benchmark::State& state) {
  constexpr int32_t kSequences = 256;
  KvCache cache({.num_blocks = 1 << 17, .free_order = static_cast<FreeOrder>(state.range(0))});
  std::vector<SeqId> sequences;
  const auto allocate_all = [&] {
    for (int32_t i = 0; i < kSequences; ++i) sequences.push_back(cache.allocate(1000 + 37 * i).seq);
  };
  allocate_all();
  for (auto _ : state) {
    for (const SeqId s : sequences) {
      if (cache.append(s).status == CacheStatus::kOk) [[likely]]
        continue;
      for (const SeqId each : sequences) cache.free(each);
      sequences.clear();
      allocate_all();
      break;
    }
  }
  state.SetItemsProcessed(state.iterations() * kSequences);
}
BENCHMARK(append)->ArgName("free_order")->DenseRange(0, 2);

/// A prompt of 2,000 tokens whose first 1,000 are known, allocated and freed.
void allocate_shared(benchmark::State& state) {
  KvCache cache({.num_blocks = 1 << 12});
  std::vector<uint64_t> hashes(125);
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = i + 1;
  uint64_t request = 0;
  for (auto _ : state) {
    ++request;
    for (std::size_t i = 62; i < hashes.size(); ++i) hashes[i] = (request << 32) + i;
    cache.free(cache.allocate(2000, hashes).seq);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(allocate_shared);

double resident_mib() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// All steps of a trace of short requests: 10 to 209 prompt tokens, of which half begin with one of 100 known
/// prefixes of 64, and 1 to 63 output tokens. Arrivals are as fast as the server is at full load, so that
/// queues and preemptions occur. peak_mib is that of the process: it must not grow with the number of requests.
void plan(benchmark::State& state) {
  for (auto _ : state) {
    std::mt19937_64 rng(1);
    PoissonArrivals arrivals(1000, 2);
    int64_t made = 0;
    const auto next = [&](Request& r) {
      if (made++ == state.range(0)) return false;
      const uint64_t bits = rng();
      r.arrival_ns = arrivals.next_ns();
      r.prompt_tokens = 10 + static_cast<int32_t>(bits % 200);
      r.output_tokens = 1 + static_cast<int32_t>((bits >> 16) % 63);
      if (bits >> 63) {
        for (uint64_t i = 0; i < 4; ++i) r.prefix_hashes.push_back((bits >> 32) % 100 << 8 | i);
      }
      return true;
    };
    Scheduler scheduler({.num_blocks = 1024}, {.step_ns = 2'000'000, .token_ps = 5'000'000}, next);
    while (scheduler.next() != nullptr) continue;
    const SchedulerTotals& t = scheduler.totals();
    state.counters["steps"] = static_cast<double>(t.steps);
    state.counters["preempted"] = static_cast<double>(t.preempted);
    state.counters["tokens"] = static_cast<double>(t.query_tokens);
  }
  state.counters["peak_mib"] = resident_mib();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(plan)->ArgName("requests")->Arg(100'000)->Arg(1'000'000)->Iterations(1)->Unit(benchmark::kSecond);

/// All steps of requests of a mix by the server that serve-sim simulates.
void plan_mix(benchmark::State& state) {
  const Mix& mix = mixes()[static_cast<std::size_t>(state.range(0))];
  const int64_t requests = mix.prefixes.kind == PrefixSharing::Kind::kAppend ? 10'000 : 50'000;
  for (auto _ : state) {
    const ServingSpec spec;
    MixRequests source(mix, spec.rate, 16, spec.seed);
    int64_t made = 0;
    Scheduler scheduler(cache_options(spec, 16), scheduler_options(spec),
                        [&](Request& r) { return made++ < requests && source(r); });
    while (scheduler.next() != nullptr) continue;
    const SchedulerTotals& t = scheduler.totals();
    state.counters["steps_per_request"] = static_cast<double>(t.steps) / static_cast<double>(requests);
    state.counters["blocks_per_request"] =
        static_cast<double>(t.query_tokens + t.prefix_hit_tokens) / 16 / static_cast<double>(requests);
  }
  state.SetLabel(mix.name);
  state.SetItemsProcessed(state.iterations() * requests);
}
BENCHMARK(plan_mix)->Apply([](auto* b) {
  b->ArgName("mix")
      ->DenseRange(0, static_cast<int64_t>(mixes().size()) - 1)
      ->Iterations(1)
      ->Unit(benchmark::kSecond);
});

/// About 64 MB of a form, as published files have it: header, line by line.
std::string trace_text(TraceForm form) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  std::string text;
  switch (form) {
    case TraceForm::kAzure:
      text = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
      break;
    case TraceForm::kBurstGpt:
      text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
      break;
    case TraceForm::kPlain:
      text = "arrival,prompt,output,prefix\n";
      break;
    default:
      break;
  }
  std::mt19937_64 rng(1);
  for (uint64_t i = 0; text.size() < kBytes; ++i) {
    const uint64_t prompt = 512 + rng() % 16384, output = 1 + rng() % 1000;
    switch (form) {
      case TraceForm::kAzure:
        text += fmt::format("2023-11-16 {:02}:{:02}:{:02}.{:07},{},{}\n", i / 360'000'000 % 24,
                            i / 6'000'000 % 60, i / 100'000 % 60, i % 100'000 * 100, prompt, output);
        break;
      case TraceForm::kBurstGpt:
        text += fmt::format("{},ChatGPT,{},{},{},Conversation log\n", i, prompt, output, prompt + output);
        break;
      case TraceForm::kPlain:
        text += fmt::format("{}.{:03},{},{},{}:512\n", i / 1000, i % 1000, prompt, output, i % 100);
        break;
      default:
        text += fmt::format(R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [0)",
                            i * 3000, prompt, output);
        for (uint64_t piece = 1; piece * 512 < prompt; ++piece) text += fmt::format(", {}", i * 20 + piece);
        text += "]}\n";
        break;
    }
  }
  return text;
}

/// Requests of a trace in memory, with hashes of blocks of 16 tokens. The bar is 200 MB/s for each form.
void read_trace(benchmark::State& state) {
  const auto form = static_cast<TraceForm>(state.range(0));
  const std::string text = trace_text(form);
  int64_t requests = 0;
  for (auto _ : state) {
    const auto read = [&, at = std::size_t{0}](char* to, std::size_t size) mutable {
      const std::size_t n = std::min(size, text.size() - at);
      text.copy(to, n, at);
      at += n;
      return n;
    };
    TraceReader reader("trace", LineReader(read), {});
    for (Request r; r.prefix_hashes.clear(), reader(r);) ++requests;
  }
  state.SetLabel(trace_form_name(form));
  state.SetItemsProcessed(requests);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}
BENCHMARK(read_trace)->ArgName("form")->DenseRange(0, 3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace attnbench

BENCHMARK_MAIN();
