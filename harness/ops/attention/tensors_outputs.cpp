#include "harness/ops/attention/tensors_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace attnbench::ops::attention {
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

/// The rows of O that lie in no hole.
std::vector<int64_t> rows_there(const Workload& w, const AttentionParams& a) {
  std::vector<int64_t> rows;
  const char* out = w.data<char>("out");
  const int64_t bytes = a.out_stride_token * static_cast<int64_t>(dtype_size(a.dtype_out));
  const std::vector<Hole> holes = w.device().holes_of(out);
  auto hole = holes.begin();
  for (int64_t r = 0; r < a.total_q; ++r) {
    const char* const row = out + r * bytes;
    while (hole != holes.end() && hole->end <= row) ++hole;
    if (hole == holes.end() || hole->begin >= row + bytes) rows.push_back(r);
  }
  return rows;
}

/// Drops the rows that belong to no query. Leading ones may hold anything. Those of gaps must not be written.
void drop_unused_rows(const Workload& w, const std::vector<int64_t>& there, HostOutputs& h) {
  const WorkloadPlan& plan = w.plan();
  const int64_t total = plan.total_q;
  const auto lead = static_cast<std::size_t>(plan.cu_seqlens_q.front());
  if (there.empty() || (lead == 0 && plan.seqused_q.empty())) return;
  const std::vector<bool> all_used = used_rows(plan, total);
  std::vector<bool> used;
  for (const int64_t row : there) used.push_back(all_used[static_cast<std::size_t>(row)]);
  const std::size_t out_row = h.out.size() / used.size();
  const std::size_t probs_row = h.lse.empty() ? 0 : h.probs.size() / h.lse.size();
  const unsigned sign =
      w.signs() == plain_signs(w.item().params) ? 0 : 0x80;  // poison's may have been taken off
  const std::pair<const char*, int64_t> written[] = {
      {"O", keep_used(h.out, used, out_row, lead, sign)},
      {"LSE", keep_used(h.lse, used, 1, lead)},
      {"a probability", keep_used(h.probs, used, probs_row, lead)}};
  for (const auto& [name, row] : written) {
    if (row < 0 || !h.unused_written.empty()) continue;
    const int64_t of_all = there[static_cast<std::size_t>(row)];
    const auto behind = std::ranges::upper_bound(plan.cu_seqlens_q, of_all);
    h.unused_written = fmt::format("{} of row {} was written, which lies behind the queries of seq {}", name,
                                   of_all, behind - plan.cu_seqlens_q.begin() - 1);
  }
}

/// Copies the new rows out of the downloaded caches, in the order of their tokens.
void take_new_rows(const Workload& w, HostOutputs& h) {
  for (const bool is_v : {false, true}) {
    const FillJob job = w.cache_job(is_v);
    const HostBytes& cache = is_v ? h.v_cache : h.k_cache;
    std::vector<unsigned char>& rows = is_v ? h.new_v : h.new_k;
    const auto element = static_cast<int64_t>(dtype_size(job.dtype));
    for (const int64_t slot : w.plan().slot_mapping) {
      if (slot < 0) continue;
      for (int32_t head = 0; head < job.num_heads; ++head) {
        const auto* at = cache.begin() + fill_offset(job, slot, head) * element;
        rows.insert(rows.end(), at, at + job.head_dim * element);
      }
    }
  }
}

}  // namespace

OutputLayout layout_of(const AttentionParams& a) {
  return {a.total_q,         a.num_heads_q,     a.head_dim_v, {a.out_stride_token, a.out_stride_head},
          a.lse_stride_head, a.lse_stride_token};
}

HostOutputs download(const Workload& w) {
  HostOutputs h;
  const CaseParams& p = w.item().params;
  const AttentionParams a = w.params().attention;
  if (p.append) {
    h.k_cache = w.download_cache("k_cache");
    h.v_cache = w.download_cache("v_cache");
    take_new_rows(w, h);
  }
  const std::vector<int64_t> there = rows_there(w, a);
  const bool all = std::ssize(there) == a.total_q;
  download_o_and_lse(w, layout_of(a), h, all ? nullptr : &there);
  h.probs = w.download<float>("probs");
  if (!all && p.probs)
    h.probs =
        rows_of(h.probs.data(), a.num_heads_q, a.probs_stride_head, a.total_q, a.probs_stride_token, there);
  if (w.padded() && p.probs) {
    h.probs = without_padding(std::move(h.probs),
                              {a.num_heads_q, std::ssize(there) * a.probs_stride_token, std::ssize(there),
                               a.probs_stride_token, int64_t{a.max_seqlen_k}},
                              "probs", h.stray);
  }
  drop_unused_rows(w, there, h);
  return h;
}

}  // namespace attnbench::ops::attention
