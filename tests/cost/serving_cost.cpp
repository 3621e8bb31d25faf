// Cost of planning a server's steps, on one core: the KV cache manager and the scheduler.
//
//   attnbench_serving_cost --benchmark_out=FILE.json --benchmark_out_format=json
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <random>
#include <vector>

#include "harness/serving/kv_cache.h"
#include "harness/serving/scheduler.h"

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

}  // namespace
}  // namespace attnbench

BENCHMARK_MAIN();
