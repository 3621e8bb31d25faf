#include "harness/judge/sample.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/cases/seen_keys.h"
#include "harness/cases/visible_keys.h"
#include "harness/error.h"
#include "harness/tensors/plan.h"

namespace attnbench {
namespace {

constexpr int kBoundaryRowsPerSequence = 12;
constexpr int64_t kBoundaryRowsInAll = 512;
constexpr int kRandomRowsPerSequence = 2;
constexpr int kRandomKeysPerSequence = 4;
constexpr double kKeyFlop = 1e11;  ///< budget of a sample of keys for the forward passes that they need
constexpr int kHeadsAtEnds = 16;   ///< most heads of a group at a sequence's first and last row

constexpr int kPlaces = 4;  ///< a sequence and a KV head, drawn beside those of each sequence
constexpr int kRowsOfPlace = 4;

using SampledRow = std::tuple<int, int, int>;  ///< seq, pos, head

std::vector<reference::RowId> sampled_row_ids(const std::set<SampledRow>& rows) {
  std::vector<reference::RowId> out;
  out.reserve(rows.size());
  for (const auto& [seq, pos, head] : rows) out.push_back({seq, pos, head});
  return out;
}

/// Numbers that follow from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  template <class Count>
  int below(Count n) {
    return static_cast<int>(engine_() % static_cast<uint64_t>(n));
  }

 private:
  std::mt19937_64 engine_;
};

/// Adds random rows at random places.
void add_places(const CaseParams& p, Draw& draw, int places, int rows_of_each, std::set<SampledRow>& rows) {
  const int ratio = p.num_heads_q / p.num_heads_kv;
  std::vector<int> with_queries;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    if (p.seqs[b].q > 0) with_queries.push_back(static_cast<int>(b));
  }
  for (int i = 0; i < places && !with_queries.empty(); ++i) {
    const int seq = with_queries[static_cast<std::size_t>(draw.below(with_queries.size()))];
    const int kv_head = draw.below(p.num_heads_kv);
    for (int n = 0; n < rows_of_each; ++n) {
      const int pos = draw.below(p.seqs[static_cast<std::size_t>(seq)].q);
      rows.emplace(seq, pos, kv_head * ratio + draw.below(ratio));
    }
  }
}

}  // namespace

uint64_t seed_or_drawn(uint64_t seed) {
  constexpr uint64_t kKept = (uint64_t{1} << 53) - 1;  // a number of JSON in every reader
  while ((seed &= kKept) == 0) {
    if (getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed))
      throw Error(std::string("the system gives no random numbers: ") + std::strerror(errno), kExitFailure);
  }
  return seed;
}

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

std::vector<reference::RowId> sample_rows(const Case& c, uint64_t seed) {
  const CaseParams& p = c.params;
  const int ratio = p.num_heads_q / p.num_heads_kv;
  Draw draw(seed);
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
    const int kv_head = draw.below(p.num_heads_kv);
    int turn = draw.below(ratio);
    const auto next_head = [&] { return kv_head * ratio + turn++ % ratio; };
    for (int i = 0; i < std::min(ratio, kHeadsAtEnds); ++i) add(b, 0, next_head());
    for (int i = 0; i < std::min(ratio, kHeadsAtEnds); ++i) add(b, s.q - 1, next_head());

    // A boundary lies where the query's own index or its diagonal on the key axis is a multiple of a tile.
    int added = 0;
    bool diagonal = false;
    for (const int tile : {64, 16, 128, 32, 256}) {
      if (s.q <= tile || added >= kBoundaryRowsPerSequence || boundary_rows >= kBoundaryRowsInAll) continue;
      const int multiple = tile * (1 + draw.below((s.q - 1) / tile));
      const int shift = diagonal ? std::max(0, s.k - s.q) % tile : 0;
      diagonal = !diagonal;
      for (int delta = -1; delta <= 1; ++delta) {
        const int pos = multiple - shift + delta;
        if (pos < 0 || pos >= s.q) continue;
        add(b, pos, next_head());
        ++added;
        ++boundary_rows;
      }
    }
    for (int i = 0; i < kRandomRowsPerSequence; ++i) add(b, draw.below(s.q), next_head());
  }
  add_places(p, draw, kPlaces, kRowsOfPlace, rows);
  if (any_seq < p.seqs.size()) {
    for (int h = 0; h < p.num_heads_q; ++h) {
      if (!head_seen[static_cast<std::size_t>(h)]) add(any_seq, p.seqs[any_seq].q - 1, h);
    }
  }
  return sampled_row_ids(rows);
}

std::vector<reference::RowId> few_rows(const Case& c, uint64_t seed) {
  Draw draw(seed);
  std::set<SampledRow> rows;
  add_places(c.params, draw, 2, 8, rows);
  return sampled_row_ids(rows);
}

namespace {

bool every_row(const Case& c, CheckMode mode) {
  return mode == CheckMode::kFull || (mode == CheckMode::kSampled && cost_of(c).flop <= kCheapFlop);
}

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

void sample_keys_of(const Case& c, std::size_t b, int first, Draw& draw, std::set<SampledRow>& keys) {
  const SeqLen& s = c.params.seqs[b];
  const int kv_head = draw.below(c.params.num_heads_kv);
  const auto add = [&](int pos) {
    if (pos >= first && pos < s.k) keys.emplace(static_cast<int>(b), pos, kv_head);
  };
  add(first);
  add(s.k - 1);
  for (const int tile : {64, 128, 32}) {
    const int boundary = first + (s.k - first > tile ? tile * (1 + draw.below((s.k - first - 1) / tile)) : 0);
    for (int delta = -1; delta <= 1; ++delta) add(boundary / tile * tile + delta);
  }
  for (int i = 0; i < kRandomKeysPerSequence; ++i) add(first + draw.below(s.k - first));
}

}  // namespace

std::vector<reference::KeyId> keys_to_compare(const Case& c, const reference::Problem& problem,
                                              const Check& check) {
  if (every_row(c, check.mode)) return reference::all_keys(problem);
  Draw draw(check.rows_seed);
  std::vector<std::pair<int64_t, std::size_t>> by_cost;
  for (std::size_t b = 0; b < c.params.seqs.size(); ++b) {
    const SeqLen& s = c.params.seqs[b];
    if (s.k > 0) by_cost.emplace_back(visible_pairs(mask_of(c.params), s.q, s.k), b);
  }
  std::ranges::sort(by_cost);
  const double per_pair = cost_of(c).flop / std::max(1.0, cost_of(c).pairs) / c.params.num_heads_kv;
  std::set<SampledRow> keys;
  double left = kKeyFlop;
  for (const auto& [pairs, b] : by_cost) {
    const int first = first_affordable_key(c.params, b, left);
    const bool whole = first == 0;
    const double cost = per_pair * static_cast<double>(pairs);
    if (!keys.empty() && whole && cost > left) break;
    sample_keys_of(c, b, first, draw, keys);
    left = std::max(0.0, left - std::min(cost, left));
  }
  std::vector<reference::KeyId> out;
  for (const auto& [seq, pos, kv_head] : keys) out.push_back({seq, pos, kv_head});
  return out;
}

std::vector<reference::RowId> rows_to_compare(const Case& c, const reference::Problem& problem,
                                              const Check& check) {
  if (every_row(c, check.mode)) return reference::all_rows(problem);
  return check.mode == CheckMode::kFewRows ? few_rows(c, check.rows_seed) : sample_rows(c, check.rows_seed);
}

}  // namespace attnbench
