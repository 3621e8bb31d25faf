#include "harness/workload/plan_move.h"

#include <algorithm>
#include <numeric>

#include "harness/cases/paths.h"
#include "harness/workload/shuffle.h"

namespace attnbench {
namespace {

constexpr RowOwner kNoKey{-1, -1};
/// A block's destination is drawn by another stream than its source (shuffle.h).
constexpr uint32_t kDestinationStream = 0x11u << 24;

std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

int64_t blocks_of(const CaseParams& p, const SeqLen& s) {
  return (int64_t{s.k} + p.block_size - 1) / p.block_size;
}

/// Blocks of a pool that nothing may write, beside `used` ones.
int64_t spare_of(int64_t used) { return std::clamp<int64_t>(used / 16, 2, 64); }

/// Whose values rows without a key hold: those of sequences that do not exist.
RowOwner of_source(const CaseParams& p, int64_t row) {
  return {static_cast<int32_t>(p.seqs.size()), static_cast<int32_t>(row)};
}
RowOwner of_destination(const CaseParams& p, int64_t row) {
  return {static_cast<int32_t>(p.seqs.size()) + 1, static_cast<int32_t>(row)};
}

/// The blocks that a launch copies, in the order of sequences.
std::vector<int32_t> sources_of(const CaseParams& p, const WorkloadPlan& plan) {
  std::vector<int32_t> sources;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int64_t blocks = blocks_of(p, p.seqs[b]);
    for (int64_t i = 0; i < move_copies(p, p.seqs[b].k); ++i) {
      sources.push_back(plan.block_table[b * at(plan.block_table_stride) + at(std::min(i, blocks - 1))]);
    }
  }
  return sources;
}

void plan_blocks(const CaseParams& p, uint64_t seed, WorkloadPlan& plan) {
  const std::vector<int32_t> sources = sources_of(p, plan);
  const int64_t bs = p.block_size;
  std::vector<bool> in_use(at(plan.num_blocks), false);
  for (const int32_t block : sources) in_use[at(block)] = true;
  for (int64_t r = 0; r < std::ssize(plan.kv_owners); ++r) {
    if (in_use[at(r / bs)] && plan.kv_owners[at(r)].seq < 0) plan.kv_owners[at(r)] = of_source(p, r);
  }
  std::vector<int32_t> free;
  if (p.two_pools) {
    plan.num_blocks_dst = checked_int32(std::ssize(sources) + spare_of(std::ssize(sources)), "num_blocks");
    free.resize(at(plan.num_blocks_dst));
    std::iota(free.begin(), free.end(), 0);
    plan.source_owners = std::move(plan.kv_owners);
    plan.kv_owners.clear();
    for (int64_t r = 0; r < plan.num_blocks_dst * bs; ++r) plan.kv_owners.push_back(of_destination(p, r));
  } else {
    plan.num_blocks_dst = plan.num_blocks;
    for (int32_t block = 0; block < plan.num_blocks; ++block) {
      if (!in_use[at(block)]) free.push_back(block);
    }
  }
  if (p.page_layout != PageLayout::kContiguous) shuffle(free, seed, kDestinationStream);
  const std::vector<RowOwner> from = p.two_pools ? plan.source_owners : plan.kv_owners;
  plan.appended.assign(plan.kv_owners.size(), kNoKey);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    plan.block_pairs.push_back(sources[i]);
    plan.block_pairs.push_back(free[i]);
    for (int64_t r = 0; r < bs; ++r) {
      const int64_t to = free[i] * bs + r;
      plan.appended[at(to)] = from[at(sources[i] * bs + r)];
      plan.kv_owners[at(to)] = kNoKey;
      plan.slot_mapping.push_back(to);
    }
  }
  // What stands behind the last pair leads to a block that must stay.
  plan.stale_pair = {sources.empty() ? 0 : sources.front(), free.empty() ? 0 : free[sources.size()]};
}

void plan_gather(const CaseParams& p, int32_t lead_rows, WorkloadPlan& plan) {
  plan.source_owners = std::move(plan.kv_owners);
  plan.kv_owners.clear();
  const auto others = [&](int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      plan.kv_owners.push_back(of_destination(p, std::ssize(plan.kv_owners)));
      plan.appended.push_back(kNoKey);
    }
  };
  others(lead_rows);
  plan.cu_seqlens_k.push_back(lead_rows);
  const int64_t bs = p.block_size;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int32_t start = p.start_of(b);
    if (p.starts != Starts::kNone) plan.seq_starts.push_back(start);
    for (int32_t r = start; r < p.seqs[b].k; ++r) {
      const int64_t block = plan.block_table[b * at(plan.block_table_stride) + at(r / bs)];
      plan.slot_mapping.push_back(std::ssize(plan.kv_owners));
      plan.appended.push_back(plan.source_owners[at(block * bs + r % bs)]);
      plan.kv_owners.push_back(kNoKey);
    }
    plan.cu_seqlens_k.push_back(checked_int32(std::ssize(plan.kv_owners), "total_k"));
  }
  others(kTailRows);
}

}  // namespace

CaseParams with_room_for_copies(CaseParams p) {
  if (p.gathers() || p.two_pools) return p;
  const int64_t shared = p.shared_tokens() / p.block_size;
  int64_t blocks = p.blocks ? p.blocks->num_blocks() : p.seqs.empty() ? 0 : shared, copies = 0;
  for (const SeqLen& s : p.seqs) {
    if (!p.blocks) blocks += blocks_of(p, s) - shared;
    copies += move_copies(p, s.k);
  }
  const int64_t needed = blocks + copies + spare_of(copies);
  if (needed > p.pool_blocks) p.pool_blocks = checked_int32(needed, "num_blocks");
  return p;
}

void plan_move(const CaseParams& p, uint64_t seed, int32_t lead_rows, WorkloadPlan& plan) {
  if (p.gathers()) return plan_gather(p, lead_rows, plan);
  plan_blocks(p, seed, plan);
}

}  // namespace attnbench
