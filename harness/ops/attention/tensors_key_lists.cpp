#include "harness/ops/attention/tensors_key_lists.h"

#include "harness/cases/key_lists.h"

namespace attnbench {
namespace {

/// The physical row of a key, as an entry names it.
int32_t row_of(const CaseParams& p, const WorkloadPlan& plan, std::size_t b, int32_t key) {
  if (p.kv == KvSource::kPacked) return plan.cu_seqlens_k[b] + key;
  const auto table_row = plan.cache_batch_idx.empty() ? b : static_cast<std::size_t>(plan.cache_batch_idx[b]);
  const int32_t row = key + (plan.cache_leftpad.empty() ? 0 : plan.cache_leftpad[b]);
  const std::size_t entry = table_row * static_cast<std::size_t>(plan.block_table_stride) +
                            static_cast<std::size_t>(row / p.block_size);
  return plan.block_table[entry] * p.block_size + row % p.block_size;
}

/// Calls visit(b, i, kv_head, list) for all lists.
template <class Visit>
void for_each_list(const Case& c, const LayoutVariant& variant, const Visit& visit) {
  const CaseParams& p = c.params;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const SeqLen& s = p.seqs[b];
    for (int32_t i = 0; i < s.q; ++i) {
      const KeyRange visible = visible_keys(mask_of(p), s.q, s.k, i);
      for (int32_t h = 0; h < p.num_heads_kv; ++h)
        visit(b, i, h, key_list_of(p, {c.seed, variant.seq_id(b), i}, h, visible));
    }
  }
}

}  // namespace

TokenStrides key_list_strides(const CaseParams& p, bool padded) {
  const int64_t gap = padded ? kPadRow : 0;
  const int64_t head = p.topk + gap;
  return {p.num_heads_kv * head + gap, head};
}

KeyListTensors key_list_tensors(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant) {
  KeyListTensors t;
  const CaseParams& p = c.params;
  if (p.topk == 0) return t;
  const TokenStrides strides = key_list_strides(p, variant.padded_strides);
  // Lists of one token more than there are, as in a buffer of an engine's largest batch.
  t.indices.resize(static_cast<std::size_t>((plan.total_q + 1) * strides.token));
  for (std::size_t n = 0; n < t.indices.size(); ++n) t.indices[n] = kJunkEntries[n % 2];
  if (p.topk_length != TopkLength::kFull)
    t.lengths.assign(static_cast<std::size_t>(plan.total_q + 1), p.topk);
  for_each_list(c, variant, [&](std::size_t b, int32_t i, int32_t h, const std::vector<int32_t>& list) {
    const int64_t token = int64_t{plan.cu_seqlens_q[b]} + i;
    if (!t.lengths.empty()) t.lengths[static_cast<std::size_t>(token)] = static_cast<int32_t>(list.size());
    const auto at = static_cast<std::size_t>(token * strides.token + h * strides.head);
    for (std::size_t n = 0; n < list.size(); ++n)
      t.indices[at + n] = list[n] < 0 ? -1 : row_of(p, plan, b, list[n]);
  });
  return t;
}

std::vector<bool> listed_rows(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant) {
  std::vector<bool> rows(plan.kv_owners.size(), false);
  for_each_list(c, variant, [&](std::size_t b, int32_t, int32_t, const std::vector<int32_t>& list) {
    for (const int32_t key : list) {
      if (key >= 0) rows[static_cast<std::size_t>(row_of(c.params, plan, b, key))] = true;
    }
  });
  return rows;
}

}  // namespace attnbench
