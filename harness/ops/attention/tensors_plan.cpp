#include "harness/ops/attention/tensors_parts.h"

#include <algorithm>
#include <numeric>

#include "harness/cases/cost.h"
#include "harness/cases/visible_keys.h"
#include "harness/ops/attention/tensors_key_lists.h"
#include "harness/tensors/shuffle.h"

namespace attnbench::ops::attention {
namespace {

constexpr RowOwner kPoison{-1, -1};

/// Plans `append: in_call`. New tokens are the last keys of each sequence. Their rows hold poison before the
/// launch.
void plan_append_in_call(const CaseParams& p, int32_t lead_rows, WorkloadPlan& plan) {
  plan.appended.assign(plan.kv_owners.size(), kPoison);
  plan.cu_seqlens_new.push_back(lead_rows);
  plan.token_owners.assign(static_cast<std::size_t>(lead_rows), kPoison);
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    for (int32_t pos = p.seqs[b].k - p.new_len(p.seqs[b]); pos < p.seqs[b].k; ++pos) {
      plan.token_owners.push_back({static_cast<int32_t>(b), pos});
    }
    plan.cu_seqlens_new.push_back(checked_int32(static_cast<int64_t>(plan.token_owners.size()), "total_new"));
  }
  plan.slot_mapping.assign(plan.token_owners.size(), -1);
  for (std::size_t r = 0; r < plan.kv_owners.size(); ++r) {
    const RowOwner owner = plan.kv_owners[r];
    if (owner.seq < 0) continue;
    const SeqLen& s = p.seqs[static_cast<std::size_t>(owner.seq)];
    const int32_t i = owner.pos - (s.k - p.new_len(s));
    if (i < 0) continue;
    plan.slot_mapping[static_cast<std::size_t>(plan.cu_seqlens_new[static_cast<std::size_t>(owner.seq)] +
                                               i)] = static_cast<int64_t>(r);
    plan.appended[r] = owner;
    plan.kv_owners[r] = kPoison;
  }
  plan.token_owners.insert(plan.token_owners.end(), kTailRows, kPoison);
}

/// First key of each sequence that one of its queries sees; its length if it has no queries.
std::vector<int32_t> first_seen_keys(const CaseParams& p) {
  std::vector<int32_t> first;
  for (const SeqLen& s : p.seqs)
    first.push_back(static_cast<int32_t>(visible_keys_union(mask_of(p), s.q, s.k).begin));
  return first;
}

/// Poisons KV rows left of every query's window: all rows, if a sequence has no queries. A row of a shared
/// prefix is poisoned if this holds for all sequences. With `expired: freed`, entries of blocks that hold
/// only such rows become junk; blocks with new tokens keep theirs.
void expire(const CaseParams& p, WorkloadPlan& plan) {
  const std::vector<int32_t> first = first_seen_keys(p);
  const int32_t first_of_all = first.empty() ? 0 : *std::ranges::min_element(first);
  for (RowOwner& o : plan.kv_owners) {
    if (o.seq < 0) continue;
    const bool shared = o.pos < p.shared_tokens();
    if (o.pos < (shared ? first_of_all : first[static_cast<std::size_t>(o.seq)])) o = kPoison;
  }
  if (p.expired != Expired::kFreed) return;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const SeqLen& s = p.seqs[b];
    const int32_t kept = std::min(first[b], s.k - p.new_len(s));  // rows from this one on are kept
    const int32_t leftpad = plan.cache_leftpad.empty() ? 0 : plan.cache_leftpad[b];
    // If all rows are expired, a last block that is not full is freed, too.
    const int32_t freed =
        kept == s.k ? (leftpad + s.k + p.block_size - 1) / p.block_size : (leftpad + kept) / p.block_size;
    for (int32_t i = 0; i < freed; ++i) {
      plan.block_table[b * static_cast<std::size_t>(plan.block_table_stride) + static_cast<std::size_t>(i)] =
          kJunkBlocks[(b + static_cast<std::size_t>(i) + 1) % 2];
    }
  }
}

/// Puts the rows of block_table in another order, with unused rows among them.
void shuffle_table(const CaseParams& p, uint64_t seed, WorkloadPlan& plan) {
  const auto stride = static_cast<std::size_t>(plan.block_table_stride);
  std::vector<int32_t> order(static_cast<std::size_t>(contiguous_rows(p.seqs.size())));
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, seed);
  std::vector<int32_t> table(order.size() * stride);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = kJunkBlocks[i % 2];
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const auto row = static_cast<std::size_t>(order[b]);
    std::copy_n(plan.block_table.begin() + static_cast<std::ptrdiff_t>(b * stride), stride,
                table.begin() + static_cast<std::ptrdiff_t>(row * stride));
    plan.cache_batch_idx.push_back(order[b]);
  }
  plan.block_table = std::move(table);
}

}  // namespace

void plan(const Case& c, const LayoutVariant& variant, WorkloadPlan& plan) {
  const CaseParams& p = c.params;
  plan_rows(p, c.seed, variant, plan);
  if (p.append) plan_append_in_call(p, variant.lead_rows, plan);
  if (p.expired != Expired::kKept) expire(p, plan);
  if (p.kv == KvSource::kPaged && p.shuffled_table) shuffle_table(p, c.seed ^ variant.salt, plan);
  if (p.topk == 0) return;
  const std::vector<bool> listed = listed_rows(c, plan, variant);
  for (std::size_t r = 0; r < listed.size(); ++r) {
    if (!listed[r]) plan.kv_owners[r] = kPoison;
  }
}

}  // namespace attnbench::ops::attention
