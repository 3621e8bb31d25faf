// The outputs of a launch as verification reads them: on the host, dense, without rows of no sequence.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <numbers>
#include <utility>
#include <vector>

#include "harness/error.h"
#include "harness/workload/workload.h"

namespace attnbench {
namespace {

/// Which of the `total` rows a query has, or may have: not those before the first sequence and in gaps behind
/// queries. Rows from cu_seqlens_q[B] on are kept.
std::vector<bool> used_rows(const WorkloadPlan& plan, int64_t total) {
  std::vector<bool> used(static_cast<std::size_t>(total), true);
  std::fill_n(used.begin(), plan.cu_seqlens_q.front(), false);
  for (std::size_t b = 0; b < plan.seqused_q.size(); ++b) {
    std::fill(used.begin() + plan.cu_seqlens_q[b] + plan.seqused_q[b],
              used.begin() + plan.cu_seqlens_q[b + 1], false);
  }
  return used;
}

/// Removes from `values`, (outer, used.size(), width), the rows that are not used. Returns the first row from
/// `first` on that is removed and not poison; -1 if there is none. Bits of `sign` in a byte may differ.
template <class T>
int64_t keep_used(std::vector<T>& values, const std::vector<bool>& used, std::size_t width, std::size_t first,
                  unsigned sign = 0) {
  const auto is_poison = [sign](const T& x) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&x);
    return std::all_of(bytes, bytes + sizeof(T), [sign](unsigned byte) { return (byte | sign) == 0xff; });
  };
  int64_t written = -1;
  auto to = values.begin();
  for (std::size_t i = 0; width > 0 && i < values.size() / width; ++i) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(i * width);
    const auto end = from + static_cast<std::ptrdiff_t>(width);
    const std::size_t row = i % used.size();
    if (used[row]) {
      to = std::copy(from, end, to);
    } else if (row >= first && written < 0 && !std::all_of(from, end, is_poison)) {
      written = static_cast<int64_t>(row);
    }
  }
  values.erase(to, values.end());
  return written;
}

}  // namespace

void HostOutputs::flip_infinities() {
  inf_empty_lse = true;
  for (float& x : lse) {
    if (std::isinf(x)) x = -x;
  }
}

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
  if (item_.params.op != Op::kKvMove) fetch(h.out, memory(kOut));  // of kv_append: its queries
  if (has_out) {
    fetch(h.lse, memory(kLse));
    fetch(h.probs, memory(kProbs));
  }
  take_signs_off(h);
  if (has_out) {
    if (item_.params.append) take_new_rows(h);
    if (padded_) drop_padding(h);
    make_lse_plain(h);
    if (item_.params.op == Op::kAttention) drop_unused_rows(h);
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

/// Drops the rows that belong to no query. Leading ones may hold anything. Those of gaps must not be written.
void Workload::drop_unused_rows(HostOutputs& h) const {
  const int64_t total = plan_.total_q;
  const auto lead = static_cast<std::size_t>(plan_.cu_seqlens_q.front());
  if (total == 0 || (lead == 0 && plan_.seqused_q.empty())) return;
  const std::vector<bool> used = used_rows(plan_, total);
  const std::size_t out_row = h.out.size() / used.size();
  const std::size_t probs_row = h.lse.empty() ? 0 : h.probs.size() / h.lse.size();
  const unsigned sign = signs() == plain_signs(item_.params) ? 0 : 0x80;  // poison's may have been taken off
  const std::pair<const char*, int64_t> written[] = {
      {"O", keep_used(h.out, used, out_row, lead, sign)},
      {"LSE", keep_used(h.lse, used, 1, lead)},
      {"a probability", keep_used(h.probs, used, probs_row, lead)}};
  for (const auto& [name, row] : written) {
    if (row < 0 || !h.unused_written.empty()) continue;
    const auto behind = std::upper_bound(plan_.cu_seqlens_q.begin(), plan_.cu_seqlens_q.end(), row);
    h.unused_written = fmt::format("{} of row {} was written, which lies behind the queries of seq {}", name,
                                   row, behind - plan_.cu_seqlens_q.begin() - 1);
  }
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
