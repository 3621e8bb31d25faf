// Faults of sparse attention by indices: lists that are not read, or not as the contract says.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define LIST_SMALL "dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, topk: 40"
#define LIST_SEQS "batch: q5s70_q3s100_q20s33"
#define LIST_LATENT \
  "dtype: bf16, heads: 16/1, head_dim: 576, head_dim_v: 512, v_is_k_view: true, mask: causal, topk: 40"
constexpr const char* kLists[] = {
    "{kv: packed, " LIST_SMALL ", " LIST_SEQS "}",
    "{kv: paged, block_size: 16, " LIST_SMALL ", " LIST_SEQS "}",
    "{kv: paged, block_size: 64, " LIST_LATENT ", " LIST_SEQS "}",
};
constexpr const char* kDrawnLengths[] = {
    "{kv: packed, " LIST_SMALL ", topk_length: drawn, " LIST_SEQS "}",
    "{kv: paged, block_size: 16, " LIST_SMALL ", topk_length: drawn, " LIST_SEQS "}",
    "{kv: paged, block_size: 64, " LIST_LATENT ", topk_length: drawn, " LIST_SEQS "}",
};
constexpr const char* kZeroLengths[] = {
    "{kv: packed, " LIST_SMALL ", topk_length: zero, " LIST_SEQS "}",
    "{kv: paged, block_size: 16, " LIST_SMALL ", topk_length: zero, " LIST_SEQS "}",
    "{kv: paged, block_size: 64, " LIST_LATENT ", topk_length: zero, " LIST_SEQS "}",
};
constexpr const char* kSeveralHeads[] = {
    "{kv: packed, " LIST_SMALL ", " LIST_SEQS "}",
    "{kv: paged, block_size: 16, " LIST_SMALL ", " LIST_SEQS "}",
};

/// A launch whose lists are changed.
Tamper::Fault with_lists(std::function<void(const HostView&, std::vector<int32_t>&)> to) {
  return with_params([to = std::move(to)](Tamper& t, AttentionParams& p) {
    if (p.topk_indices == nullptr) return;
    const HostView view(t, p);
    std::vector<int32_t> lists = view.lists;
    to(view, lists);
    p.topk_indices = t.put(lists);
  });
}

/// Calls visit(entry, whether it counts) for all entries of all lists.
template <class Visit>
void for_each_entry(const HostView& v, std::vector<int32_t>& lists, const Visit& visit) {
  const AttentionParams& p = v.p();
  for (int64_t token = v.cu_q.front(); token < v.cu_q.back(); ++token) {
    const int32_t length = v.list_lengths.empty() ? p.topk : v.list_lengths[static_cast<std::size_t>(token)];
    for (int32_t h = 0; h < p.num_heads_kv; ++h) {
      for (int32_t n = 0; n < p.topk; ++n) {
        visit(lists[static_cast<std::size_t>(token * p.topk_stride_token + h * p.topk_stride_head + n)],
              n < length);
      }
    }
  }
}

/// A row of each sequence that the lists may name: its first key.
std::vector<int32_t> first_rows(const HostView& v) {
  std::vector<int32_t> rows;
  for (int b = 0; b < v.p().batch; ++b) {
    if (v.k_len(b) == 0) continue;
    rows.push_back(static_cast<int32_t>(v.physical_row(b, 0)));
  }
  return rows;
}

/// Entries that do not count hold rows, not junk: a kernel that follows junk would end the process.
void make_junk_rows(const HostView& v, std::vector<int32_t>& lists) {
  const std::vector<int32_t> rows = first_rows(v);
  std::size_t next = 0;
  for_each_entry(v, lists, [&](int32_t& entry, bool counts) {
    if (!counts && !rows.empty()) entry = rows[next++ % rows.size()];
  });
}

}  // namespace

FaultClass key_list_faults() {
  return {"lists of keys",
          {{"lists_ignored",
            "every key is seen that the other masks show",
            {std::begin(kLists), std::end(kLists)},
            with_params([](Tamper&, AttentionParams& p) {
              p.features &= ~uint64_t{kTopkIndices};
              p.topk_indices = nullptr;
              p.topk_length = nullptr;
              p.topk = 0;
            }),
            {"topk"},
            "the lists of keys are not read"},
           {"topk_length_ignored",
            "all entries of a list count",
            {std::begin(kDrawnLengths), std::end(kDrawnLengths)},
            with_params([](Tamper& t, AttentionParams& p) {
              if (p.topk_indices == nullptr) return;
              const HostView view(t, p);
              std::vector<int32_t> lists = view.lists;
              make_junk_rows(view, lists);
              p.topk_indices = t.put(lists);
              p.topk_length = nullptr;
            }),
            {"topk_length: drawn"},
            "must not be read"},
           {"topk_length_0_means_all",
            "all entries count of a list whose length is 0",
            {std::begin(kZeroLengths), std::end(kZeroLengths)},
            with_params([](Tamper& t, AttentionParams& p) {
              if (p.topk_length == nullptr) return;
              const HostView view(t, p);
              std::vector<int32_t> lists = view.lists, lengths = view.list_lengths;
              make_junk_rows(view, lists);
              std::ranges::replace(lengths, 0, p.topk);
              p.topk_indices = t.put(lists);
              p.topk_length = t.put(lengths);
            }),
            {"topk_length: zero"},
            "must not be read"},
           {"minus_one_is_row_0",
            "an entry of -1 is taken as the first row",
            {std::begin(kLists), std::end(kLists)},
            with_lists([](const HostView& v, std::vector<int32_t>& lists) {
              for_each_entry(v, lists, [](int32_t& entry, bool counts) {
                if (counts && entry < 0) entry = 0;
              });
            }),
            {},
            ": key "},
           {"list_of_kv_head_0",
            "all KV heads read the list of the first",
            {std::begin(kSeveralHeads), std::end(kSeveralHeads)},
            with_params([](Tamper&, AttentionParams& p) { p.topk_stride_head = 0; }),
            {"topk"},
            "the lists of KV head 0 are taken for all"}}};
}

}  // namespace attnbench
