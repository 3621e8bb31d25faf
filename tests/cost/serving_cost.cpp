// Cost of planning a server's steps, on one core: the KV cache manager.
//
//   attnbench_serving_cost --benchmark_out=FILE.json --benchmark_out_format=json
#include <benchmark/benchmark.h>

#include <vector>

#include "harness/serving/kv_cache.h"

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

}  // namespace
}  // namespace attnbench

BENCHMARK_MAIN();
