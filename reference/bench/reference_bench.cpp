// Speed of the reference on one thread, with inputs in memory. `useful` counts 4 D flop per visible (query,
// key) pair and head, for the two products of attention. It does not count the moments, the exponentials and
// masked keys. For gradients it counts 10 D, for their five products. Run with --benchmark_repetitions=5 and take the best: load of the machine slows the others.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/backward.h"

namespace attnbench::reference {
namespace {

// Each sequence and head reads another window of one buffer of normal values. So loads miss the caches as in
// real use, and no values are generated while the clock runs.
class StoredInputs : public BackwardInputs {
 public:
  explicit StoredInputs(int head_dim) : dim_(head_dim), values_((kRows + kWindows) * head_dim) {
    std::mt19937 rng(1);
    std::normal_distribution<double> normal;
    for (double& x : values_) x = normal(rng);
  }
  void load_q(int seq, int head, int begin, int end, double* out) const override {
    copy(seq, head, 0, begin, end, out);
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    copy(seq, head, 300, begin, end, out);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    copy(seq, head, 600, begin, end, out);
  }
  void load_d_out(int seq, int head, int begin, int end, double* out) const override {
    copy(seq, head, 900, begin, end, out);
  }

 private:
  static constexpr int kRows = 32768;
  static constexpr int kWindows = 1024;
  void copy(int seq, int head, int which, int begin, int end, double* out) const {
    const int window = (seq * 31 + head * 7 + which) % kWindows;
    std::copy_n(values_.data() + static_cast<size_t>(window + begin) * dim_,
                static_cast<size_t>(end - begin) * dim_, out);
  }
  int dim_;
  std::vector<double> values_;
};

int64_t run(const Problem& problem, const Inputs& inputs, const std::vector<RowId>& rows) {
  int64_t pairs = 0;
  attend(problem, inputs, rows, 1, [&](const RowBlock& block) {
    for (int64_t n : block.keys) pairs += n;
    benchmark::DoNotOptimize(block.o.data());
  });
  return pairs;
}

void measure(benchmark::State& state, const Problem& problem, const std::vector<RowId>& rows) {
  const StoredInputs inputs(problem.head_dim);
  int64_t pairs = 0;
  for (auto _ : state) pairs += run(problem, inputs, rows);
  state.counters["useful"] =
      benchmark::Counter(4.0 * problem.head_dim * static_cast<double>(pairs), benchmark::Counter::kIsRate);
}

// Arguments: head_dim, causal.
void full(benchmark::State& state) {
  Problem problem;
  problem.head_dim = static_cast<int>(state.range(0));
  problem.num_heads_q = problem.num_heads_kv = 1;
  problem.q_lens = problem.k_lens = {2048};
  problem.causal = state.range(1) != 0;
  problem.softmax_scale = 1.0 / std::sqrt(problem.head_dim);
  measure(state, problem, all_rows(problem));
}
BENCHMARK(full)->ArgNames({"D", "causal"})->ArgsProduct({{128, 64}, {0, 1}})->Unit(benchmark::kMillisecond);

// The gradients of the same problems, all rows of dq, dk and dv.
void backward(benchmark::State& state) {
  Problem problem;
  problem.head_dim = static_cast<int>(state.range(0));
  problem.num_heads_q = problem.num_heads_kv = 1;
  problem.q_lens = problem.k_lens = {2048};
  problem.causal = state.range(1) != 0;
  problem.softmax_scale = 1.0 / std::sqrt(problem.head_dim);
  const StoredInputs inputs(problem.head_dim);
  const std::vector<RowId> rows = all_rows(problem);
  const std::vector<KeyId> keys = all_keys(problem);
  const auto errors = [](const RowFacts&) { return PairErrors{1e-6, 1e-6, 1e-6, 1e-6}; };
  int64_t pairs = 0;
  for (auto _ : state) {
    differentiate(problem, inputs, rows, keys, errors, 1,
                  {[&](const QueryGrads& g) {
                     for (const RowFacts& f : g.facts) pairs += f.keys;
                   },
                   {},
                   {}});
  }
  state.counters["useful"] =
      benchmark::Counter(10.0 * problem.head_dim * static_cast<double>(pairs), benchmark::Counter::kIsRate);
}
BENCHMARK(backward)
    ->ArgNames({"D", "causal"})
    ->ArgsProduct({{128, 64}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// A sampled decode: 128 sequences of 32k tokens, 32 query heads on 8 KV heads. Argument: rows per sequence,
// each of another KV head.
void decode(benchmark::State& state) {
  Problem problem;
  problem.head_dim = 128;
  problem.num_heads_q = 32;
  problem.num_heads_kv = 8;
  problem.q_lens.assign(128, 1);
  problem.k_lens.assign(128, 32768);
  problem.causal = true;
  problem.softmax_scale = 1.0 / std::sqrt(problem.head_dim);
  std::vector<RowId> rows;
  for (int seq = 0; seq < 128; ++seq) {
    for (int i = 0; i < state.range(0); ++i) rows.push_back({seq, 0, (seq + 4 * i) % 32});
  }
  measure(state, problem, rows);
}
BENCHMARK(decode)->ArgName("rows_per_seq")->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace attnbench::reference

BENCHMARK_MAIN();
