// The outputs of a launch as verification reads them: on the host, dense, without rows of no sequence.
#include <new>
#include <numbers>

#include "harness/error.h"
#include "harness/workload/workload.h"

namespace attnbench {
namespace {

/// Drops the leading rows that belong to no sequence; they may hold anything.
void drop_lead_rows(HostOutputs& h, int64_t lead, int64_t total) {
  if (lead == 0) return;
  const auto first = h.out.begin();
  h.out.erase(first, first + static_cast<std::ptrdiff_t>(h.out.size()) / total * lead);
  const std::size_t lse_rows = h.lse.size();
  std::vector<float> lse;
  for (std::size_t i = 0; i < h.lse.size(); ++i) {
    if (static_cast<int64_t>(i) % total >= lead) lse.push_back(h.lse[i]);
  }
  h.lse = std::move(lse);
  if (h.probs.empty()) return;
  std::vector<float> probs;
  const std::size_t row = h.probs.size() / lse_rows;
  for (std::size_t i = 0; i < h.probs.size(); ++i) {
    if (static_cast<int64_t>(i / row) % total >= lead) probs.push_back(h.probs[i]);
  }
  h.probs = std::move(probs);
}

}  // namespace

HostOutputs Workload::download_outputs() const {
  if (item_.params.op == Op::kAttentionBackward) return gradients();
  HostOutputs h;
  const auto fetch = [&](auto& host, const GuardedBuffer& b) {
    try {
      host.resize(static_cast<std::size_t>(b.bytes()) / sizeof(host[0]));
    } catch (const std::bad_alloc&) {
      throw TooLarge("not enough host memory for a copy of " + b.name());
    }
    if (b.bytes() > 0) device_->download(host.data(), b.data(), b.bytes());
  };
  if (writes_cache(item_.params)) {
    fetch(h.k_cache, memory(kK));
    fetch(h.v_cache, memory(kV));
    fetch(h.k_scales, memory(kKScales));
    fetch(h.v_scales, memory(kVScales));
  }
  const bool has_out = item_.params.op != Op::kKvAppend && item_.params.op != Op::kKvMove;
  if (has_out) {
    fetch(h.out, memory(kOut));
    fetch(h.lse, memory(kLse));
    fetch(h.probs, memory(kProbs));
  }
  take_signs_off(h);
  if (has_out) {
    if (item_.params.append) take_new_rows(h);
    if (padded_) drop_padding(h);
    make_lse_plain(h);
    if (item_.params.op == Op::kAttention) drop_lead_rows(h, plan_.cu_seqlens_q.front(), plan_.total_q);
  }
  return h;
}

/// Makes the outputs dense, as verification reads them.
void Workload::drop_padding(HostOutputs& h) const {
  const OpParams op = params();
  const AttentionParams& a = op.attention;
  const MergeStatesParams& m = op.merge_states;
  const bool merges = op.op == Op::kMergeStates;
  const int64_t heads = item_.params.num_heads_q;
  const int64_t rows = merges ? m.num_rows : a.total_q;
  const int64_t e = static_cast<int64_t>(dtype_size(item_.params.type_of_out()));
  const TokenStrides out = merges ? TokenStrides{m.out_stride_token, m.out_stride_head}
                                  : TokenStrides{a.out_stride_token, a.out_stride_head};
  const int64_t width = merges ? m.head_dim : a.head_dim_v;
  h.out = without_padding(std::move(h.out), {rows, out.token * e, heads, out.head * e, width * e}, "out",
                          h.stray);
  const int64_t head = merges ? m.out_lse_stride_head : a.lse_stride_head;
  const int64_t token = merges ? m.out_lse_stride_token : a.lse_stride_token;
  const Extents lse = token > 0 ? Extents{rows, token, 1, 0, heads} : Extents{heads, head, 1, 0, rows};
  h.lse = without_padding(std::move(h.lse), lse, "lse", h.stray);
  if (memory(kProbs).bytes() == 0) return;
  h.probs = without_padding(std::move(h.probs),
                            {heads, a.probs_stride_head, rows, a.probs_stride_token, int64_t{a.max_seqlen_k}},
                            "probs", h.stray);
}

void Workload::make_lse_plain(HostOutputs& h) const {
  const CaseParams& p = item_.params;
  if (p.out_lse_token_major) {
    const auto heads = static_cast<std::size_t>(p.num_heads_q);
    const std::size_t rows = h.lse.size() / heads;
    std::vector<float> by_head(h.lse.size());
    for (std::size_t t = 0; t < rows; ++t) {
      for (std::size_t head = 0; head < heads; ++head) by_head[head * rows + t] = h.lse[t * heads + head];
    }
    h.lse = std::move(by_head);
  }
  if (!p.lse_base2) return;
  for (float& x : h.lse) x = static_cast<float>(static_cast<double>(x) * std::numbers::ln2);
}

/// Copies the new rows out of the downloaded caches, in the order of their tokens.
void Workload::take_new_rows(HostOutputs& h) const {
  for (const bool is_v : {false, true}) {
    const FillJob job = cache_job(is_v);
    const std::vector<unsigned char>& cache = is_v ? h.v_cache : h.k_cache;
    std::vector<unsigned char>& rows = is_v ? h.new_v : h.new_k;
    const auto element = static_cast<int64_t>(dtype_size(job.dtype));
    for (const int64_t slot : plan_.slot_mapping) {
      if (slot < 0) continue;
      for (int32_t head = 0; head < job.num_heads; ++head) {
        const auto at = cache.begin() + fill_offset(job, slot, head) * element;
        rows.insert(rows.end(), at, at + job.head_dim * element);
      }
    }
  }
}

}  // namespace attnbench
