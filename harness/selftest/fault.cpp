#include "harness/selftest/fault.h"

#include <utility>

namespace attnbench {

std::vector<FaultClass> all_faults() {
  return {mask_faults(),       length_faults(),      empty_row_faults(),
          paging_faults(),     nan_faults(),         head_faults(),
          split_faults(),      num_splits_faults(),  score_faults(),
          quantised_faults(),  input_faults(),       width_faults(),
          training_faults(),   in_call_faults(),     position_faults(),
          append_faults(),     rotary_faults(),      quantised_append_faults(),
          merge_faults(),      memory_faults(),      state_faults(),
          layout_faults(),     stride_faults(),      ignored_faults(),
          backward_faults(),   lse_faults(),         refusal_faults(),
          scale_faults(),      custom_mask_faults(), key_list_faults(),
          move_faults(),       query_faults(),       cached_rotary_faults(),
          block_scale_faults()};
}

std::vector<Fault> joined(std::initializer_list<std::vector<Fault>> groups) {
  std::vector<Fault> all;
  for (const std::vector<Fault>& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

Tamper::Fault with_params(std::function<void(Tamper&, AttentionParams&)> change) {
  return [change = std::move(change)](Tamper& t, const OpParams& op) {
    AttentionParams p = op.attention;
    change(t, p);
    return t.launch(p);
  };
}

Tamper::Fault with_op(std::function<void(Tamper&, OpParams&)> change) {
  return [change = std::move(change)](Tamper& t, const OpParams& op) {
    OpParams wrong = op;
    change(t, wrong);
    return t.launch(wrong);
  };
}

Tamper::Fault with_append(std::function<void(Tamper&, KvAppendParams&)> change) {
  return with_op([change = std::move(change)](Tamper& t, OpParams& op) { change(t, op.kv_append); });
}

int64_t pages_of(const HostView& v, int b) { return (v.k_len(b) + v.p().block_size - 1) / v.p().block_size; }

Tamper::Fault with_output(std::function<void(const HostView&, OutView&)> change) {
  return [change = std::move(change)](Tamper& t, const OpParams& op) {
    const KernelStatus s = t.launch(op);
    if (s != KernelStatus::kOk) return s;
    const HostView view(t, op.attention);
    t.edit(op.attention, [&](OutView& out) { change(view, out); });
    return s;
  };
}

Tamper::Fault with_rule(HostRule rule) {
  return with_output([rule = std::move(rule)](const HostView& view, OutView& out) {
    HostAttention host(view);
    for (const HostRow& row : view.rows()) {
      const HostResult r = host.by_rule(row, rule);
      for (int c = 0; c < view.p().head_dim; ++c)
        out.set_o(row.token, row.head, c, static_cast<float>(r.o[static_cast<std::size_t>(c)]));
      out.lse_of(row.token, row.head) = static_cast<float>(r.lse);
    }
  });
}

void change_lengths(Tamper& t, AttentionParams& p, const std::function<int32_t(int b, int32_t k_len)>& to) {
  if (p.batch == 0) return;
  std::vector<int32_t> used;
  if (p.seqused_k != nullptr) {
    used = t.read<int32_t>(p.seqused_k, p.batch);
  } else {
    const auto cu = t.read<int32_t>(p.cu_seqlens_k, p.batch + 1);
    for (std::size_t b = 0; b + 1 < cu.size(); ++b) used.push_back(cu[b + 1] - cu[b]);
    p.features |= kPartialKv;
  }
  for (std::size_t b = 0; b < used.size(); ++b) used[b] = to(static_cast<int>(b), used[b]);
  p.seqused_k = t.put(used);
}

void change_table(Tamper& t, AttentionParams& p,
                  const std::function<void(const HostView&, std::vector<int32_t>&)>& to) {
  const HostView view(t, p);
  std::vector<int32_t> table = view.table;
  if (table.empty()) return;  // an invariant's relaunch without pages
  to(view, table);
  p.block_table = t.put(table);
}

}  // namespace attnbench
