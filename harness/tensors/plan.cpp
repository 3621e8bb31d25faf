#include "harness/tensors/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "harness/cases/cost.h"
#include "harness/cases/paths.h"
#include "harness/error.h"
#include "harness/ops/tensors_ops.h"
#include "harness/tensors/aged_order.h"
#include "harness/tensors/shuffle.h"
#include "harness/tensors/strides.h"
#include "kernels/contract/philox.h"

namespace attnbench {

int32_t checked_int32(int64_t x, const char* what) {
  if (x > std::numeric_limits<int32_t>::max()) {
    throw TooLarge(std::string(what) + " is " + std::to_string(x) + ", past the 32-bit limit of the field");
  }
  return static_cast<int32_t>(x);
}

namespace {

constexpr RowOwner kPoison{-1, -1};
// These differ from every Tensor's counters (values.h) and from the sample's (judge/sample.cpp).
constexpr uint32_t kSinkStream = 0x7u << 24;
constexpr uint32_t kQueryGapStream = 0x10u << 24;

void plan_queries(const CaseParams& p, int32_t lead_rows, WorkloadPlan& plan) {
  const std::vector<int64_t> begins = packed_q_begins(p);
  for (const int64_t begin : begins) plan.cu_seqlens_q.push_back(checked_int32(lead_rows + begin, "total_q"));
  plan.total_q = lead_rows + begins.back();
  plan.q_owners.assign(static_cast<std::size_t>(plan.total_q), kPoison);
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const SeqLen& s = p.seqs[b];
    plan.max_seqlen_q = std::max(plan.max_seqlen_q, s.q);
    plan.max_seqlen_k = std::max(plan.max_seqlen_k, s.k);
    if (p.gap_queries > 0) plan.seqused_q.push_back(s.q);
    for (int32_t i = 0; i < s.q; ++i)
      plan.q_owners[static_cast<std::size_t>(plan.cu_seqlens_q[b] + i)] = {static_cast<int32_t>(b), i};
  }
  plan.q_owners.insert(plan.q_owners.end(), kTailRows, kPoison);
}

void plan_packed(const CaseParams& p, int32_t lead_rows, WorkloadPlan& plan) {
  plan.cu_seqlens_k.push_back(lead_rows);
  plan.kv_owners.assign(static_cast<std::size_t>(lead_rows), kPoison);
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int32_t k = p.seqs[b].k;
    for (int32_t j = 0; j < k; ++j) plan.kv_owners.push_back({static_cast<int32_t>(b), j});
    plan.kv_owners.insert(plan.kv_owners.end(), static_cast<std::size_t>(p.gap_tokens), kPoison);
    plan.cu_seqlens_k.push_back(checked_int32(static_cast<int64_t>(plan.kv_owners.size()), "total_k"));
    if (p.gap_tokens > 0) plan.seqused_k.push_back(k);
  }
  plan.kv_owners.insert(plan.kv_owners.end(), kTailRows, kPoison);
}

/// Plans one pool for each rank of this device; only dcp has several. A shared prefix takes the first blocks of
/// the order, and sequence 0 owns its rows.
void plan_paged(const CaseParams& p, uint64_t seed, int32_t only_rank, WorkloadPlan& plan) {
  const int64_t bs = p.block_size;
  const int32_t ranks = p.path == Path::kDcp ? p.dcp_ranks : 1;
  const int32_t interleave = ranks > 1 ? p.dcp_interleave : 1;
  const int32_t first_rank = p.devices() > 1 ? only_rank : 0;
  const int32_t end_rank = p.devices() > 1 ? only_rank + 1 : ranks;
  const int64_t pools = end_rank - first_rank;
  const int64_t shared = p.seqs.empty() ? 0 : p.shared_tokens() / bs;
  const auto local_len = [&](const SeqLen& s, int32_t rank) {
    return dcp_local_len(s.k, ranks, interleave, rank);
  };
  int64_t mapped = 0;  // blocks of the fullest rank
  int64_t longest = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    int64_t of_rank = shared;
    for (const SeqLen& s : p.seqs) {
      // All sequences have room for the longest padding, so that they may change places.
      const int64_t blocks = (local_len(s, rank) + p.leftpad + bs - 1) / bs;
      of_rank += std::max<int64_t>(0, blocks - shared);
      longest = std::max(longest, blocks);
      if (rank >= first_rank && rank < end_rank) plan.seqused_k.push_back(local_len(s, rank));
    }
    mapped = std::max(mapped, of_rank);
  }
  // Some blocks belong to no sequence: a kernel that follows a wrong or junk entry reads poison.
  const int64_t spare = std::clamp<int64_t>(mapped / 16, 2, 64);
  const int64_t pool = std::max<int64_t>(mapped + spare, p.pool_blocks);
  plan.num_blocks = checked_int32(pools * pool, "num_blocks");
  plan.block_table_stride = longest + 1;
  plan.block_table.reserve(static_cast<std::size_t>(pools) * p.seqs.size() *
                           static_cast<std::size_t>(plan.block_table_stride));
  plan.kv_owners.assign(static_cast<std::size_t>(pools * pool * bs), kPoison);
  for (int32_t rank = first_rank; rank < end_rank; ++rank) {
    std::vector<int32_t> order(static_cast<std::size_t>(pool));
    std::iota(order.begin(), order.end(), 0);
    const uint64_t rank_seed = seed ^ static_cast<uint64_t>(rank) << 32;
    const bool aged = p.page_layout == PageLayout::kLifoAged;
    if (aged) {
      std::vector<int64_t> blocks;
      for (const SeqLen& s : p.seqs) blocks.push_back((local_len(s, rank) + p.leftpad + bs - 1) / bs);
      order = aged_order(blocks, static_cast<int32_t>(pool), rank_seed);
    } else if (p.page_layout != PageLayout::kContiguous) {
      shuffle(order, rank_seed);
    }
    std::size_t next = static_cast<std::size_t>(shared);
    for (std::size_t b = 0; b < p.seqs.size(); ++b) {
      const int32_t leftpad = leftpad_of(p, b);
      if (p.leftpad > 0) plan.cache_leftpad.push_back(leftpad);
      const int64_t rows = leftpad + local_len(p.seqs[b], rank);
      const int64_t blocks = (rows + bs - 1) / bs;
      for (int64_t i = 0; i < plan.block_table_stride; ++i) {
        if (i >= blocks) {
          plan.block_table.push_back(kJunkBlocks[(i - blocks) % 2]);
          continue;
        }
        const int32_t block = order[i < shared ? static_cast<std::size_t>(i) : next++];
        plan.block_table.push_back(block);
        for (int64_t r = std::max<int64_t>(i * bs, leftpad); r < std::min(rows, (i + 1) * bs); ++r) {
          plan.kv_owners[static_cast<std::size_t>(((rank - first_rank) * pool + block) * bs + r % bs)] = {
              i < shared ? 0 : static_cast<int32_t>(b),
              dcp_global_pos(static_cast<int32_t>(r - leftpad), ranks, interleave, rank)};
        }
      }
    }
  }
}

/// Plans the pool of a given table. With a salt its blocks change places.
void plan_given_blocks(const CaseParams& p, uint64_t salt, WorkloadPlan& plan) {
  const GivenBlocks& given = *p.blocks;
  const int64_t bs = p.block_size;
  constexpr int32_t kSpare = 2;  // poison, as in plan_paged
  plan.num_blocks =
      checked_int32(std::max<int64_t>(int64_t{given.num_blocks()} + kSpare, p.pool_blocks), "num_blocks");
  std::vector<int32_t> place(static_cast<std::size_t>(plan.num_blocks));
  std::iota(place.begin(), place.end(), 0);
  if (salt != 0) shuffle(place, salt);
  for (const auto& ids : given.ids())
    plan.block_table_stride = std::max(plan.block_table_stride, std::ssize(ids));
  ++plan.block_table_stride;
  plan.kv_owners.assign(static_cast<std::size_t>(plan.num_blocks * bs), kPoison);
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    plan.seqused_k.push_back(p.seqs[b].k);
    const std::vector<int32_t>& ids = given.ids()[b];
    for (const int32_t id : ids) plan.block_table.push_back(place[static_cast<std::size_t>(id)]);
    for (int64_t i = std::ssize(ids); i < plan.block_table_stride; ++i) {
      plan.block_table.push_back(kJunkBlocks[(i - std::ssize(ids)) % 2]);
    }
    for (int32_t r = 0; r < p.seqs[b].k; ++r) {
      const GivenBlocks::Row owner = given.owner(static_cast<int32_t>(b), r);
      const int64_t block = place[static_cast<std::size_t>(ids[static_cast<std::size_t>(r / bs)])];
      plan.kv_owners[static_cast<std::size_t>(block * bs + r % bs)] = {owner.seq, owner.pos};
    }
  }
}

void plan_pages(const CaseParams& p, const LayoutVariant& variant, uint64_t seed, WorkloadPlan& plan) {
  if (p.blocks) return plan_given_blocks(p, variant.salt, plan);
  plan_paged(p, seed, variant.rank, plan);
}

/// Plans the rows of the cache: left padding, keys, unused capacity. All that is not a key holds poison.
void plan_contiguous(const CaseParams& p, uint64_t seed, WorkloadPlan& plan) {
  const int64_t rows = contiguous_rows(p.seqs.size());
  plan.num_blocks = checked_int32(rows, "rows of the cache");
  plan.capacity = contiguous_capacity(plan.max_seqlen_k, p.leftpad);
  std::vector<int32_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  if (p.shuffled_cache) shuffle(order, seed);
  plan.kv_owners.assign(static_cast<std::size_t>(rows * plan.capacity), kPoison);
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int32_t leftpad = leftpad_of(p, b);
    plan.seqused_k.push_back(p.seqs[b].k);
    if (p.shuffled_cache) plan.cache_batch_idx.push_back(order[b]);
    if (p.leftpad > 0) plan.cache_leftpad.push_back(leftpad);
    const int64_t first = order[b] * plan.capacity + leftpad;
    for (int32_t r = 0; r < p.seqs[b].k; ++r) {
      plan.kv_owners[static_cast<std::size_t>(first + r)] = {static_cast<int32_t>(b), r};
    }
  }
}

/// Gives rows of no sequence the values of a sequence that does not exist.
void fill_padding(WorkloadPlan& plan) {
  for (auto* owners : {&plan.q_owners, &plan.kv_owners, &plan.token_owners, &plan.source_owners}) {
    for (std::size_t r = 0; r < owners->size(); ++r) {
      if ((*owners)[r].seq < 0) (*owners)[r] = {kNoSequence, static_cast<int32_t>(r)};
    }
  }
}

}  // namespace

std::vector<int32_t> query_gaps_of(const CaseParams& p) {
  const auto most = static_cast<uint32_t>(p.gap_queries);
  std::vector<int32_t> gaps(p.seqs.size(), 0);
  for (std::size_t b = 0; most > 0 && b < gaps.size(); ++b) {
    const uint32_t drawn = philox4x32(kQueryGapStream, static_cast<uint32_t>(b), 0, 0, 0).x[0];
    gaps[b] = static_cast<int32_t>(b == 0 ? most : drawn % (most + 1));
  }
  return gaps;
}

std::vector<int64_t> packed_q_begins(const CaseParams& p) {
  const std::vector<int32_t> gaps = query_gaps_of(p);
  std::vector<int64_t> begins = {0};
  for (std::size_t b = 0; b < gaps.size(); ++b) begins.push_back(begins.back() + p.seqs[b].q + gaps[b]);
  return begins;
}

float softmax_scale_of(const CaseParams& p) {
  const int32_t width = p.head_dim + (p.qv ? p.dim_v() : 0);
  return static_cast<float>(p.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(width))));
}

std::vector<float> alibi_slopes_of(const Case& c, const LayoutVariant& variant) {
  const CaseParams& p = c.params;
  std::vector<float> slopes;
  if (p.alibi == Alibi::kNone) return slopes;
  const std::size_t sequences = p.alibi == Alibi::kPerSequence ? p.seqs.size() : 1;
  for (std::size_t b = 0; b < sequences; ++b) {
    const double factor = p.alibi == Alibi::kPerSequence ? 1.0 + 0.5 * (variant.seq_id(b) % 3) : 1.0;
    for (int h = 0; h < p.num_heads_q; ++h) {
      slopes.push_back(static_cast<float>(factor * std::exp2(-8.0 * (h + 1) / p.num_heads_q)));
    }
    if (variant.padded_strides && p.alibi == Alibi::kPerSequence) {
      slopes.insert(slopes.end(), kPadRow, std::numeric_limits<float>::quiet_NaN());
    }
  }
  return slopes;
}

std::vector<float> sinks_of(const Case& c) {
  std::vector<float> sinks;
  for (int h = 0; c.params.sinks && h < c.params.num_heads_q; ++h) {
    sinks.push_back(4.0f * bell(philox4x32(kSinkStream, static_cast<uint32_t>(h), 0, 0, c.seed).x[0]));
  }
  return sinks;
}

RotaryTables rotary_tables_of(const Case& c) {
  RotaryTables t;
  if (c.params.rotary == Rotary::kNone) return t;
  t.positions = c.params.rotary_positions();
  const int half = c.params.rotary_width() / 2;
  const std::size_t size = static_cast<std::size_t>(t.positions) * static_cast<std::size_t>(half);
  t.cos.resize(size);
  t.sin.resize(size);
  std::vector<double> frequency;
  for (int i = 0; i < half; ++i) frequency.push_back(std::pow(10000.0, -static_cast<double>(i) / half));
#pragma omp parallel for schedule(static)
  for (int32_t n = 0; n < t.positions; ++n) {
    for (int i = 0; i < half; ++i) {
      const std::size_t at =
          static_cast<std::size_t>(n) * static_cast<std::size_t>(half) + static_cast<std::size_t>(i);
      t.cos[at] = static_cast<float>(std::cos(n * frequency[static_cast<std::size_t>(i)]));
      t.sin[at] = static_cast<float>(std::sin(n * frequency[static_cast<std::size_t>(i)]));
    }
  }
  return t;
}

void plan_rows(const CaseParams& p, uint64_t seed, const LayoutVariant& variant, WorkloadPlan& plan) {
  const uint64_t layout_seed = seed ^ variant.salt;
  plan_queries(p, variant.lead_rows, plan);
  switch (p.kv) {
    case KvSource::kPacked:
      return plan_packed(p, variant.lead_rows, plan);
    case KvSource::kPaged:
      return plan_pages(p, variant, layout_seed, plan);
    case KvSource::kContiguous:
      return plan_contiguous(p, layout_seed, plan);
  }
}

WorkloadPlan plan_workload(const Case& c, const LayoutVariant& variant) {
  WorkloadPlan plan;
  tensors_ops(c.params.op).plan(c, variant, plan);
  for (auto* owners : {&plan.q_owners, &plan.kv_owners, &plan.token_owners, &plan.appended}) {
    for (RowOwner& o : *owners) {
      if (o.seq < 0) continue;
      const auto b = static_cast<std::size_t>(o.seq);
      if (b >= c.params.seqs.size()) continue;  // padding
      if (owners == &plan.kv_owners && o.pos < c.params.shared_tokens())
        continue;  // sequence 0 owns it in any order
      if (owners == &plan.kv_owners && !variant.first_keys.empty()) o.pos += variant.first_keys[b];
      o.seq = variant.seq_id(b);
    }
  }
  if (variant.finite_padding) fill_padding(plan);
  return plan;
}

}  // namespace attnbench
