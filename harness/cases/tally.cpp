#include "harness/cases/tally.h"

#include <unordered_map>

#include "harness/cases/cost.h"
#include "harness/cases/kv_rows.h"
#include "harness/cases/paths.h"
#include "harness/cases/seen_keys.h"
#include "harness/cases/visible_keys.h"

namespace attnbench {
namespace {

/// Blocks of one sequence of k tokens, summed over the ranks of its path.
int64_t blocks_of_sequence(const CaseParams& p, int32_t k) {
  if (p.path != Path::kDcp) return blocks_of(k, p.block_size);
  int64_t blocks = 0;
  for (int32_t rank = 0; rank < p.dcp_ranks; ++rank) {
    blocks += blocks_of(dcp_local_len(k, p.dcp_ranks, p.dcp_interleave, rank), p.block_size);
  }
  return blocks;
}

/// Rows of given blocks that a query sees and a query of another sequence sees too, without the first time.
int64_t rows_seen_twice(const CaseParams& p) {
  std::unordered_map<int32_t, std::pair<int64_t, int64_t>>
      seen_of;  // block: rows seen in all, most of one place
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const KeyRange seen = visible_keys_union(mask_of(p), p.seqs[b].q, p.seqs[b].k);
    for (int64_t i = seen.begin / p.block_size; i * p.block_size < seen.end; ++i) {
      const int64_t first = std::max<int64_t>(seen.begin, i * p.block_size);
      const int64_t rows = std::min<int64_t>(seen.end, (i + 1) * p.block_size) - first;
      auto& [all, most] = seen_of[p.blocks->ids()[b][static_cast<std::size_t>(i)]];
      all += rows;
      most = std::max(most, rows);
    }
  }
  int64_t twice = 0;
  for (const auto& [block, rows] : seen_of) twice += rows.first - rows.second;
  return twice;
}

/// Whether key j of a sequence is seen with a KV head, for each j.
std::vector<bool> any_sees(const SeenKeys& seen, std::size_t b, const SeqLen& s, int32_t kv_head,
                           bool lists) {
  std::vector<bool> any(static_cast<std::size_t>(s.k), false);
  for (int64_t i = 0; i < s.q; ++i) {
    if (lists) {
      for (const int32_t j : seen.listed(b, i, kv_head)) any[static_cast<std::size_t>(j)] = true;
      continue;
    }
    const KeyRange keys = seen.range(b, i);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      if (seen.in_no_gap(b, i, kv_head, j)) any[static_cast<std::size_t>(j)] = true;
    }
  }
  return any;
}

/// Counts pairs and rows that a custom mask or lists of keys show. Each KV head has lists of its own.
void count_with_gaps(const CaseParams& p, uint64_t seed, Tally& t) {
  const SeenKeys seen(p, seed);
  t.pairs = t.visible = t.added_visible = 0;
  t.heads = p.topk > 0 ? p.num_heads_kv : 1;
  for (int32_t h = 0; h < t.heads; ++h) {
    std::vector<std::vector<bool>> rows;  // seen ones, each where its owner has it
    for (const SeqLen& s : p.seqs) rows.emplace_back(static_cast<std::size_t>(s.k), false);
    for (std::size_t b = 0; b < p.seqs.size(); ++b) {
      const SeqLen& s = p.seqs[b];
      for (int64_t i = 0; i < s.q; ++i) t.pairs += seen.count(b, i, h);
      const std::vector<bool> any = any_sees(seen, b, s, h, p.topk > 0);
      for (int32_t j = 0; j < s.k; ++j) {
        if (!any[static_cast<std::size_t>(j)]) continue;
        if (j >= s.k - p.new_len(s)) ++t.added_visible;
        GivenBlocks::Row owner{j < p.shared_tokens() ? 0 : static_cast<int32_t>(b), j};
        if (p.blocks) owner = p.blocks->owner(static_cast<int32_t>(b), j);
        std::vector<bool>::reference row =
            rows[static_cast<std::size_t>(owner.seq)][static_cast<std::size_t>(owner.pos)];
        t.visible += row ? 0 : 1;
        row = true;
      }
    }
  }
}

}  // namespace

double shared_scales(const CaseParams& p, bool is_v, DescalesPer usual) {
  const DescalesPer per = p.descales_of(is_v) == DescalesPer::kUsual ? usual : p.descales_of(is_v);
  if (per == DescalesPer::kTensor) return 1;
  return p.num_heads_kv * (per == DescalesPer::kChannel ? p.dim_of_kv(is_v) : 1);
}

int64_t new_positions(const CaseParams& p) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const SeqLen& s : p.seqs) {
    if (p.rotary_cached) {
      const KeyRange seen = visible_keys_union(mask_of(p), s.q, s.k);
      ranges.emplace_back(seen.begin, seen.end);
    } else {
      ranges.emplace_back(s.k - p.new_len(s), s.k);
    }
    if (s.q > 0) ranges.emplace_back(p.rotary_position(s, 0), p.rotary_position(s, s.q - 1) + 1);
  }
  return union_size(std::move(ranges));
}

Tally tally_of(const CaseParams& p, DrawSeed seed) {
  Tally t;
  const Mask mask = mask_of(p);
  int64_t longest = 0;
  const int64_t shared = p.shared_tokens();
  std::vector<std::pair<int64_t, int64_t>> shared_visible;  // visible part of the prefix, by sequence
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const SeqLen& s = p.seqs[b];
    const int32_t leftpad = leftpad_of(p, b);
    t.interval += visible_pairs(mask, s.q, s.k);
    const KeyRange seen = visible_keys_union(mask, s.q, s.k);
    t.visible += seen.size();
    t.added += p.new_len(s);
    if (!seen.empty()) {
      // A window may begin within a block.
      t.added_visible += std::max<int64_t>(0, seen.end - std::max<int64_t>(seen.begin, s.k - p.new_len(s)));
      t.blocks += p.path == Path::kDcp
                      ? blocks_of_sequence(p, s.k)
                      : (leftpad + seen.end - 1) / p.block_size - (leftpad + seen.begin) / p.block_size + 1;
      if (seen.begin < shared) {
        shared_visible.emplace_back(seen.begin, std::min(seen.end, shared));
        t.visible -= shared_visible.back().second - seen.begin;
      }
    }
    longest = std::max<int64_t>(longest, s.k);
    t.kv_rows += p.kv == KvSource::kPaged
                     ? std::max<int64_t>(0, blocks_of_sequence(p, s.k + p.leftpad) * p.block_size - shared)
                     : int64_t{s.k} + p.gap_tokens;
  }
  t.visible += union_size(std::move(shared_visible));
  if (p.blocks) t.visible -= rows_seen_twice(p);
  t.pairs = t.interval;
  if (seed && has_gaps(p)) count_with_gaps(p, *seed, t);
  t.kv_rows += p.seqs.empty() ? 0 : shared;
  if (p.blocks) t.kv_rows = int64_t{p.blocks->num_blocks()} * p.block_size;
  if (p.kv == KvSource::kPaged) t.kv_rows = std::max(t.kv_rows, int64_t{p.pool_blocks} * p.block_size);
  if (p.kv == KvSource::kContiguous) {
    t.kv_rows = contiguous_rows(p.seqs.size()) * contiguous_capacity(longest, p.leftpad);
  }
  return t;
}

int64_t hole_rows(const CaseParams& p) {
  constexpr int64_t kLeastHole = 1 << 20, kTiles = 2 * 256;
  const bool packed = p.kv == KvSource::kPacked;
  int64_t parts = 0, used = 0;  // runs of used rows, at most; rows in them
  int64_t longest = 0;
  for (const SeqLen& s : p.seqs) {
    const int64_t blocks = p.kv == KvSource::kPaged ? blocks_of_sequence(p, s.k + p.leftpad) + s.q : s.k > 0;
    parts += (p.does().moves ? 2 : 1) * blocks;
    used += packed ? s.k + kTiles : 0;
    longest = std::max<int64_t>(longest, s.k);
  }
  if (p.kv == KvSource::kPaged) used = parts * p.block_size;
  if (p.kv == KvSource::kContiguous) used = parts * contiguous_capacity(longest, p.leftpad);
  const auto row = std::max<int64_t>(1, static_cast<int64_t>(kv_row_bytes(p)) / 2);
  return std::max<int64_t>(0,
                           tally_of(p, std::nullopt).kv_rows - used - (parts + 1) * (kLeastHole / row + 1));
}

double kv_row_bytes(const CaseParams& p) {
  const auto row = [&p](bool is_v) {
    const int64_t scales = has_scale_tensor(p, is_v) ? block_scales(p, is_v) : 0;
    return element_bytes(p.type_of_kv(is_v)) * static_cast<double>(row_elements(p, is_v)) +
           static_cast<double>(scales);
  };
  const auto with_descale = [&](bool is_v) {
    return row(is_v) + (p.row_descales(is_v) ? 4.0 / (is_v ? 1 : p.k_descale_rows) : 0);
  };
  return p.num_heads_kv * (with_descale(false) + (p.v_is_k_view ? 0 : with_descale(true)));
}

}  // namespace attnbench
