#include "harness/launch/parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cases/paths.h"

namespace attnbench {
namespace {

constexpr uint64_t kFloatBits = kBf16 | kFp16 | kFp32;

template <class T>
void move_by(T*& pointer, int64_t elements) {
  if (pointer) pointer += elements;
}
void move_by(const void*& pointer, int64_t elements, DType type) {
  if (pointer)
    pointer = static_cast<const char*>(pointer) + elements * static_cast<int64_t>(dtype_size(type));
}
void move_by(void*& pointer, int64_t elements, DType type) {
  const void* p = pointer;
  move_by(p, elements, type);
  pointer = const_cast<void*>(p);
}

/// Moves pointers to descales that are addressed like rows of K or V by `n` blocks or cache rows.
void move_row_descales(const CaseParams& p, AttentionParams& a, int64_t n) {
  if (p.row_descales(false)) move_by(a.k_descale, n * a.k_descale_stride_block);
  if (p.row_descales(true)) move_by(a.v_descale, n * a.v_descale_stride_block);
}

void drop(AttentionParams& a, Feature feature) { a.features &= ~uint64_t{feature}; }

/// The part for sequences [first, last) of the whole call, with all their keys.
Part sequences(const CaseParams& p, const AttentionParams& whole, int32_t lead, std::size_t first,
               std::size_t last) {
  Part part;
  AttentionParams& a = part.params = whole;
  int64_t before = lead;
  for (std::size_t b = 0; b < first; ++b) before += p.seqs[b].q;
  a.batch = static_cast<int32_t>(last - first);
  a.max_seqlen_q = a.max_seqlen_k = 0;
  part.cu_seqlens_q = {0};
  for (std::size_t b = first; b < last; ++b) {
    a.max_seqlen_q = std::max(a.max_seqlen_q, p.seqs[b].q);
    a.max_seqlen_k = std::max(a.max_seqlen_k, p.seqs[b].k);
    part.cu_seqlens_q.push_back(part.cu_seqlens_q.back() + p.seqs[b].q);
  }
  a.total_q = part.cu_seqlens_q.back();
  a.cu_seqlens_q = nullptr;
  move_by(a.q, before * a.q_stride_token, a.dtype_q);
  move_by(a.out, before * a.out_stride_token, a.dtype_out);
  move_by(a.lse, a.features & kLseTokenMajor ? before * a.lse_stride_token : before);
  const auto n = static_cast<int64_t>(first);
  move_by(a.cu_seqlens_k, n);
  move_by(a.seqused_k, n);
  if (a.cache_batch_idx == nullptr) move_by(a.block_table, n * a.block_table_stride);
  move_by(a.cache_batch_idx, n);
  if ((a.features & kContiguousKv) &&
      a.cache_batch_idx == nullptr) {  // the part's first row is its own row 0
    move_by(a.k, n * a.k_stride_block, a.dtype_k);
    move_by(a.v, n * a.v_stride_block, a.dtype_v);
    move_row_descales(p, a, n);
  }
  move_by(a.cache_leftpad, n);
  move_by(a.alibi_slopes, n * a.alibi_stride_batch);
  // int8: descales of q are per token, and all sequences share V's. Those per row are addressed like rows.
  move_by(a.q_descale, (a.dtype_q == DType::kInt8 ? before : n) * a.q_descale_stride_outer);
  if (!p.row_descales(false)) move_by(a.k_descale, n * a.k_descale_stride_outer);
  if (!p.row_descales(true) && a.dtype_v != DType::kInt8) move_by(a.v_descale, n * a.v_descale_stride_outer);
  return part;
}

Part all_sequences(const CaseParams& p, const AttentionParams& whole, int32_t lead) {
  return sequences(p, whole, lead, 0, p.seqs.size());
}

void write_state(Part& part, int32_t state) {
  part.state = state;
  part.params.out = nullptr;
  part.params.lse = nullptr;
  part.params.lse_stride_head = part.params.total_q;
}

std::vector<Part> cascade(const CaseParams& p, const AttentionParams& whole, int32_t lead) {
  const int32_t shared = p.shared_tokens();
  Part prefix = all_sequences(p, whole, lead);
  prefix.name = "prefix";
  AttentionParams& a = prefix.params;
  const auto total = static_cast<int32_t>(a.total_q);
  a.batch = 1;
  a.max_seqlen_q = total;
  a.max_seqlen_k = shared;
  a.seqused_k = nullptr;
  prefix.cu_seqlens_q = {0, total};
  prefix.seqused_k = {shared};
  a.causal = 0;  // every query is behind the prefix (check_paths)
  drop(a, kCausal);
  a.sinks = nullptr;  // the suffix adds the sink, once
  drop(a, kSinks);
  write_state(prefix, 0);

  Part suffix = all_sequences(p, whole, lead);
  suffix.name = "suffix";
  move_by(suffix.params.block_table, shared / p.block_size);
  suffix.params.max_seqlen_k -= shared;
  suffix.params.seqused_k = nullptr;
  for (const SeqLen& s : p.seqs) suffix.seqused_k.push_back(s.k - shared);
  write_state(suffix, 1);
  return {prefix, suffix};
}

std::vector<Part> split_decode(const CaseParams& p, const AttentionParams& whole, int32_t lead) {
  const std::size_t decodes = leading_decodes(p);
  std::vector<Part> parts = {sequences(p, whole, lead, 0, decodes),
                             sequences(p, whole, lead, decodes, p.seqs.size())};
  parts[0].name = "decodes";
  parts[1].name = "prefills";
  std::erase_if(parts, [](const Part& part) { return part.params.total_q == 0; });
  return parts;
}

/// If each rank is a device of its own, `whole` has the tables and the pool of one rank, and all parts have the same.
std::vector<Part> dcp(const CaseParams& p, const AttentionParams& whole, int32_t lead) {
  const bool apart = p.devices() > 1;
  std::vector<Part> parts;
  for (int32_t rank = 0; rank < p.dcp_ranks; ++rank) {
    Part& part = parts.emplace_back(all_sequences(p, whole, lead));
    part.name = fmt::format("rank {}", rank);
    AttentionParams& a = part.params;
    a.num_blocks = apart ? whole.num_blocks : whole.num_blocks / p.dcp_ranks;
    const int64_t pool = apart ? 0 : int64_t{rank} * a.num_blocks;
    move_by(a.k, pool * a.k_stride_block, a.dtype_k);
    move_by(a.v, pool * a.v_stride_block, a.dtype_v);
    move_row_descales(p, a, pool);
    const int64_t rows = apart ? 0 : static_cast<int64_t>(p.seqs.size()) * rank;
    move_by(a.block_table, rows * a.block_table_stride);
    move_by(a.seqused_k, rows);
    a.max_seqlen_k = dcp_local_len(whole.max_seqlen_k, p.dcp_ranks, p.dcp_interleave, rank);
    if (rank > 0) {  // rank 0 adds the sink, once
      a.sinks = nullptr;
      drop(a, kSinks);
    }
    write_state(part, rank);
    if (!apart) continue;
    // Heads outside, tokens inside: the heads of a rank are then one piece of memory (rank_exchange.h).
    a.q_stride_token = a.head_dim;
    a.q_stride_head = a.total_q * a.head_dim;
    a.out_stride_token = a.head_dim_v;
    a.out_stride_head = a.total_q * a.head_dim_v;
  }
  return parts;
}

}  // namespace

std::vector<Part> parts_of(const CaseParams& p, const AttentionParams& whole, int32_t lead) {
  int64_t queries = 0;
  for (const SeqLen& s : p.seqs) queries += s.q;
  if (queries == 0) return {};
  switch (p.path) {
    case Path::kOneCall:
      break;
    case Path::kCascade:
      return cascade(p, whole, lead);
    case Path::kSplitDecode:
      return split_decode(p, whole, lead);
    case Path::kDcp:
      return dcp(p, whole, lead);
  }
  return {};
}

MergeStatesParams merge_of(const AttentionParams& whole, int32_t num_states, int32_t lead) {
  MergeStatesParams m{};
  m.features = whole.features & kFloatBits;
  m.num_states = num_states;
  m.num_heads = whole.num_heads_q;
  m.head_dim = whole.head_dim_v;
  m.dtype_partial = m.dtype_out = whole.dtype_out;
  m.num_rows = whole.total_q - lead;
  m.partial_stride_token = whole.out_stride_token;
  m.partial_stride_head = whole.out_stride_head;
  m.partial_stride_state = m.num_rows * m.partial_stride_token;
  m.lse_stride_token = 1;
  m.lse_stride_head = m.num_rows;
  m.lse_stride_state = m.num_rows * m.num_heads;
  m.out = whole.out;
  m.out_stride_token = whole.out_stride_token;
  m.out_stride_head = whole.out_stride_head;
  move_by(m.out, lead * m.out_stride_token, m.dtype_out);
  m.out_lse = whole.lse;
  move_by(m.out_lse, lead);
  m.out_lse_stride_head = whole.lse_stride_head;
  return m;
}

}  // namespace attnbench
