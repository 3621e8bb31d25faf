#include "harness/verify/sample.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/cases/seen_keys.h"
#include "harness/cases/visible_keys.h"
#include "harness/workload/plan.h"
#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

constexpr uint32_t kSampleStream = 0x6u << 24;  // differs from every Tensor's (values.h)
constexpr int kBoundaryRowsPerSequence = 12;
constexpr int64_t kBoundaryRowsInAll = 512;
constexpr int kRandomRowsPerSequence = 2;
constexpr double kKeyFlop = 1e11;  ///< budget of a sample of keys for the forward passes that they need
constexpr int kHeadsAtEnds = 16;   ///< most heads of a group at a sequence's first and last row

using SampledRow = std::tuple<int, int, int>;  ///< seq, pos, head

std::vector<reference::RowId> sampled_row_ids(const std::set<SampledRow>& rows) {
  std::vector<reference::RowId> out;
  out.reserve(rows.size());
  for (const auto& [seq, pos, head] : rows) out.push_back({seq, pos, head});
  return out;
}

}  // namespace

reference::Problem problem_of(const Case& c) {
  const CaseParams& p = c.params;
  reference::Problem r;
  r.head_dim = p.head_dim;
  r.head_dim_v = p.dim_v();
  r.num_heads_q = p.num_heads_q;
  r.num_heads_kv = p.num_heads_kv;
  for (const SeqLen& s : p.seqs) {
    r.q_lens.push_back(s.q);
    r.k_lens.push_back(s.k);
  }
  r.causal = p.causal;
  r.top_left = p.causal.top_left;
  r.window_left = p.window_left;
  r.window_right = p.window_right;
  r.attention_chunk = p.attention_chunk;
  if (has_gaps(p)) {
    const int ratio = p.num_heads_q / p.num_heads_kv;
    r.sees = [seen = std::make_shared<const SeenKeys>(c), ratio](int seq, int pos, int head, int64_t key) {
      return seen->in_no_gap(static_cast<std::size_t>(seq), pos, head / ratio, key);
    };
  }
  // Kernels receive floats, so the reference takes the rounded numbers as well.
  r.softmax_scale = softmax_scale_of(p);
  r.softcap = static_cast<float>(p.softcap);
  for (const float slope : alibi_slopes_of(c)) r.alibi_slopes.push_back(slope);
  r.alibi_sqrt = p.alibi_sqrt;
  for (const float sink : sinks_of(c)) r.sinks.push_back(sink);
  r.p_dropout = static_cast<float>(p.dropout);
  r.dropout_seed = c.seed;
  r.dropout_offset = kDropoutOffset;
  if (p.gap_queries > 0) {
    r.q_begins = packed_q_begins(p);
    r.q_begins.pop_back();
  }
  r.probs = p.probs;
  r.qv = p.qv;
  return r;
}

std::vector<reference::RowId> sample_rows(const Case& c) {
  const CaseParams& p = c.params;
  const int ratio = p.num_heads_q / p.num_heads_kv;
  std::set<SampledRow> rows;
  std::vector<bool> head_seen(static_cast<std::size_t>(p.num_heads_q), false);
  const auto add = [&](std::size_t seq, int pos, int head) {
    rows.emplace(static_cast<int>(seq), pos, head);
    head_seen[static_cast<std::size_t>(head)] = true;
  };
  int64_t boundary_rows = 0;
  std::size_t any_seq = p.seqs.size();  // shortest one with queries: other heads are cheapest there
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const SeqLen& s = p.seqs[b];
    if (s.q == 0) continue;
    if (any_seq == p.seqs.size() || s.k < p.seqs[any_seq].k) any_seq = b;
    const int kv_head = static_cast<int>(b) % p.num_heads_kv;
    int turn = static_cast<int>(b);
    const auto next_head = [&] { return kv_head * ratio + turn++ % ratio; };
    for (int i = 0; i < std::min(ratio, kHeadsAtEnds); ++i) add(b, 0, next_head());
    for (int i = 0; i < std::min(ratio, kHeadsAtEnds); ++i) add(b, s.q - 1, next_head());

    const auto random = [&](uint32_t i, int n) {
      const uint64_t r = philox4x32(kSampleStream, i, static_cast<uint32_t>(b), 0, c.seed).x[0];
      return static_cast<int>((r * static_cast<uint64_t>(n)) >> 32);
    };
    // A boundary lies where the query's own index or its diagonal on the key axis is a multiple of a tile.
    int added = 0;
    uint32_t draw = 0;
    for (const int tile : {64, 16, 128, 32, 256}) {
      if (s.q <= tile || added >= kBoundaryRowsPerSequence || boundary_rows >= kBoundaryRowsInAll) continue;
      const int multiple = tile * (1 + random(draw++, (s.q - 1) / tile));
      const int shift = draw % 2 == 0 ? 0 : std::max(0, s.k - s.q) % tile;
      for (int delta = -1; delta <= 1; ++delta) {
        const int pos = multiple - shift + delta;
        if (pos < 0 || pos >= s.q) continue;
        add(b, pos, next_head());
        ++added;
        ++boundary_rows;
      }
    }
    for (uint32_t i = 0; i < kRandomRowsPerSequence; ++i) add(b, random(1000 + i, s.q), next_head());
  }
  if (any_seq < p.seqs.size()) {
    for (int h = 0; h < p.num_heads_q; ++h) {
      if (!head_seen[static_cast<std::size_t>(h)]) add(any_seq, p.seqs[any_seq].q - 1, h);
    }
  }
  return sampled_row_ids(rows);
}

std::vector<reference::RowId> few_rows(const Case& c) {
  constexpr int kSequences = 2, kRowsOfEach = 8;
  const CaseParams& p = c.params;
  const int ratio = p.num_heads_q / p.num_heads_kv;
  std::vector<int> with_queries;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    if (p.seqs[b].q > 0) with_queries.push_back(static_cast<int>(b));
  }
  if (with_queries.empty()) return {};
  std::mt19937_64 draw(c.seed);
  const auto below = [&draw](auto n) { return static_cast<int>(draw() % static_cast<uint64_t>(n)); };
  std::set<SampledRow> rows;
  for (int i = 0; i < kSequences; ++i) {
    const int seq = with_queries[static_cast<std::size_t>(below(with_queries.size()))];
    const int kv_head = below(p.num_heads_kv);
    for (int n = 0; n < kRowsOfEach; ++n) {
      rows.emplace(seq, below(p.seqs[static_cast<std::size_t>(seq)].q), kv_head * ratio + below(ratio));
    }
  }
  return sampled_row_ids(rows);
}

namespace {

/// The first key from which on the keys of sequence `b` need at most `budget` FLOP: those of the queries that
/// see one of them. 0: all fit. The last key is always taken.
int first_affordable_key(const CaseParams& p, std::size_t b, double budget) {
  const SeqLen& s = p.seqs[b];
  const double per_pair =
      (2.0 * p.head_dim + 4.0 * p.dim_v()) * p.num_heads_q / static_cast<double>(p.num_heads_kv);
  double spent = 0;
  int first = s.k - 1;
  for (int pos = s.q - 1; pos >= 0; --pos) {
    const KeyRange seen = visible_keys(mask_of(p), s.q, s.k, pos);
    spent += per_pair * static_cast<double>(seen.size());
    if (spent > budget) return p.causal ? first : 0;
    first =
        std::min<int>(first, static_cast<int>(seen.end));  // keys before it are seen by earlier queries too
  }
  return 0;
}

void sample_keys_of(const Case& c, std::size_t b, int first, std::set<SampledRow>& keys) {
  const SeqLen& s = c.params.seqs[b];
  const int kv_head = static_cast<int>(b) % c.params.num_heads_kv;
  const auto random = [&](uint32_t i, int n) {
    const uint64_t r = philox4x32(kSampleStream, i, static_cast<uint32_t>(b), 1, c.seed).x[0];
    return static_cast<int>((r * static_cast<uint64_t>(n)) >> 32);
  };
  const auto add = [&](int pos) {
    if (pos >= first && pos < s.k) keys.emplace(static_cast<int>(b), pos, kv_head);
  };
  add(first);
  add(s.k - 1);
  uint32_t draw = 0;
  for (const int tile : {64, 128, 32}) {
    const int boundary =
        first + (s.k - first > tile ? tile * (1 + random(draw++, (s.k - first - 1) / tile)) : 0);
    for (int delta = -1; delta <= 1; ++delta) add(boundary / tile * tile + delta);
  }
  for (uint32_t i = 0; i < kRandomRowsPerSequence; ++i) add(first + random(1000 + i, s.k - first));
}

}  // namespace

std::vector<reference::KeyId> keys_to_compare(const Case& c, const reference::Problem& problem,
                                              CheckMode mode) {
  const bool cheap = mode == CheckMode::kSampled && cost_of(c).flop <= kCheapFlop;
  if (cheap || mode == CheckMode::kFull) return reference::all_keys(problem);
  std::vector<std::pair<int64_t, std::size_t>> by_cost;
  for (std::size_t b = 0; b < c.params.seqs.size(); ++b) {
    const SeqLen& s = c.params.seqs[b];
    if (s.k > 0) by_cost.emplace_back(visible_pairs(mask_of(c.params), s.q, s.k), b);
  }
  std::sort(by_cost.begin(), by_cost.end());
  const double per_pair = cost_of(c).flop / std::max(1.0, cost_of(c).pairs) / c.params.num_heads_kv;
  std::set<SampledRow> keys;
  double left = kKeyFlop;
  for (const auto& [pairs, b] : by_cost) {
    const int first = first_affordable_key(c.params, b, left);
    const bool whole = first == 0;
    const double cost = per_pair * static_cast<double>(pairs);
    if (!keys.empty() && whole && cost > left) break;
    sample_keys_of(c, b, first, keys);
    left = std::max(0.0, left - std::min(cost, left));
  }
  std::vector<reference::KeyId> out;
  for (const auto& [seq, pos, kv_head] : keys) out.push_back({seq, pos, kv_head});
  return out;
}

std::vector<reference::RowId> rows_to_compare(const Case& c, const reference::Problem& problem,
                                              CheckMode mode) {
  const bool cheap = mode == CheckMode::kSampled && cost_of(c).flop <= kCheapFlop;
  if (cheap || mode == CheckMode::kFull) return reference::all_rows(problem);
  return mode == CheckMode::kFewRows ? few_rows(c) : sample_rows(c);
}

}  // namespace attnbench
