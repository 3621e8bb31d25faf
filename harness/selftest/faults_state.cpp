// Faults of memory, of state between launches, and of results that depend on the layout.
#include <algorithm>

#include "harness/selftest/fault.h"
#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

#define SMALL "dtype: bf16, heads: 8/2, head_dim: 64"
constexpr const char* kPaged =
    "{kv: paged, block_size: 16, " SMALL ", mask: causal, batch: q5s70_q1s100_q3s33_q1s64}";
constexpr const char* kPacked = "{kv: packed, " SMALL ", mask: causal, batch: q40_q17s30_q1s50}";
constexpr const char* kTiny =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 2/1, head_dim: 64, mask: none, batch: 2q1s20}";

const char* out_end(const AttentionParams& p) {
  return static_cast<const char*>(p.out) +
         p.total_q * p.out_stride_token * static_cast<int64_t>(dtype_size(p.dtype_out));
}

/// Flips the last bit of one element of O in rows of head 0. `of` names the channel; -1: none in this row.
Tamper::Fault with_nudge(std::function<int(Tamper&, const AttentionParams&, const HostRow&)> of) {
  return afterwards<&OpParams::attention>([of](Tamper& t, const AttentionParams& p) {
    const HostView view(t, p);
    t.edit(p, [&](OutView& out) {
      for (const HostRow& r : view.rows()) {
        if (r.head != 0) continue;
        const int channel = of(t, p, r);
        if (channel >= 0) out.nudge(r.token, 0, channel % p.head_dim);
      }
    });
  });
}

}  // namespace

FaultClass memory_faults() {
  return {"memory",
          {{"one_element_past_output",
            "one element is written behind O",
            {kPacked, kPaged},
            afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams& p) {
              t.write(out_end(p), std::vector<unsigned char>(dtype_size(p.dtype_out), 0x3f));
            })},
           {"one_element_before_lse",
            "one element is written before LSE",
            {kPacked, kPaged},
            afterwards<&OpParams::attention>(
                [](Tamper& t, const AttentionParams& p) { t.write(p.lse - 1, std::vector<float>{1.0f}); })},
           {"workspace_overrun",
            "one byte is written behind the workspace",
            {kPacked, kPaged},
            afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams&) {
              t.write(static_cast<char*>(t.workspace()) + t.workspace_bytes(), std::vector<unsigned char>{7});
            })},
           {"row_written_into_next_sequence",
            "a sequence's last row is written one row too far",
            {kPacked, kPaged},
            with_output([](const HostView& v, OutView& out) {
              for (std::size_t b = 0; b + 2 < v.cu_q.size(); ++b) {
                const int64_t next = v.cu_q[b + 1];
                if (next == v.cu_q[b] || v.cu_q[b + 2] == next) continue;
                for (int h = 0; h < v.p().num_heads_q; ++h) {
                  for (int c = 0; c < v.p().head_dim; ++c) out.set_o(next, h, c, out.o(next - 1, h, c));
                }
              }
            }),
            {},
            "rows change places"},
           {"output_row_unwritten",
            "the last row of the last head keeps what was there",
            {kPacked, kPaged},
            unwritten([](const HostView& v, const HostRow& r) {
              return r.token == v.p().total_q - 1 && r.head == v.p().num_heads_q - 1;
            }),
            {},
            "not written when the launch ended"},
           {"lse_unwritten",
            "LSE of the last row is not written",
            {kPacked, kPaged},
            with_output([](const HostView& v, OutView& out) {
              std::fill_n(
                  reinterpret_cast<unsigned char*>(&out.lse_of(v.p().total_q - 1, v.p().num_heads_q - 1)),
                  sizeof(float), 0xff);
            }),
            {},
            "not written when the launch ended"},
           {"query_overwritten",
            "q is scaled in place",
            {kPacked, kPaged},
            afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams& p) {
              if (p.total_q == 0) return;
              auto q = t.read<unsigned char>(
                  p.q, p.total_q * p.q_stride_token * static_cast<int64_t>(dtype_size(p.dtype_q)));
              q[q.size() - 1] ^= 0x40;
              t.write(p.q, q);
            })},
           {"cache_overwritten",
            "a slot of the pool that nobody reads is written",
            {kPaged},
            afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams& p) {
              if (!(p.features & kPagedKv)) return;
              const int64_t last = int64_t{p.num_blocks} * p.k_stride_block - 1;
              t.write(static_cast<const char*>(p.k) + last * static_cast<int64_t>(dtype_size(p.dtype_k)),
                      std::vector<unsigned char>(dtype_size(p.dtype_k), 0x11));
            })},
           {"block_table_overwritten",
            "an entry of the block table is changed",
            {kPaged},
            afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams& p) {
              if (p.block_table == nullptr) return;
              auto first = t.read<int32_t>(p.block_table, 1);
              first[0] += 1;
              t.write(p.block_table, first);
            })}}};
}

FaultClass state_faults() {
  return {"state",
          {{"second_launch_differs",
            "from the second launch on the last key is dropped",
            {kPaged, kPacked},
            with_params([](Tamper& t, AttentionParams& p) {
              if (t.launches() > 1) change_lengths(t, p, [](int, int32_t k) { return std::max(0, k - 1); });
            })},
           {"workspace_taken_as_zeros",
            "a counter in the workspace is read before it is written",
            {kPaged, kPacked},
            [](Tamper& t, const OpParams& op) {
              const auto found = t.read<float>(t.workspace(), 1);
              const KernelStatus s = t.launch(op);
              t.edit(op.attention, [&](OutView& out) {
                out.set_o(op.attention.total_q - 1, 0, 0, out.o(op.attention.total_q - 1, 0, 0) + found[0]);
              });
              return s;
            }},
           {"counter_not_reset",
            "the second launch begins where the first one ended",
            {kPaged, kPacked},
            [](Tamper& t, const OpParams& op) {
              if (t.launches() == 2) return KernelStatus::kOk;  // it finds no work left
              return t.launch(op);
            }},
           {"old_lengths",
            "the second launch uses lengths that were kept from a shorter batch",
            {kPaged, kPacked},
            with_params([](Tamper& t, AttentionParams& p) {
              if (t.launches() == 2)
                change_lengths(t, p, [](int b, int32_t k) { return b == 0 ? k - 1 : k; });
            })},
           {"unordered_sums",
            "the last bit depends on the order in which parts arrive",
            {kPaged, kPacked},
            with_nudge([](Tamper& t, const AttentionParams&, const HostRow& r) {
              return r.i == 0 && t.launches() % 2 == 0 ? 7 : -1;
            }),
            {},
            "",
            2,
            kDeterministic},
           {"rare_race",
            "one row of one launch in 1000 is wrong",
            {kTiny},
            afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams& p) {
              const uint32_t draw = philox4x32(static_cast<uint32_t>(t.launches()), 0, 0, 0, 1).x[0];
              if (t.launches() > 1 && draw < 0xffffffffu / 1000) {
                t.edit(p, [&](OutView& out) { out.set_o(0, 0, 0, out.o(0, 0, 0) + 1.0f); });
              }
            }),
            {},
            "",
            5000}}};
}

FaultClass layout_faults() {
  return {"layout",
          {{"depends_on_page_numbers",
            "the last bit depends on where pages lie",
            {kPaged},
            with_nudge([](Tamper& t, const AttentionParams& p, const HostRow& r) {
              return p.block_table != nullptr && r.i == 0 ? t.read<int32_t>(p.block_table, 1)[0] : -1;
            }),
            {},
            "",
            2,
            kDeterministic},
           {"depends_on_kv_layout",
            "the last bit depends on the order in a page",
            {kPaged},
            with_nudge([](Tamper&, const AttentionParams& p, const HostRow& r) {
              return r.i == 0 && (p.features & kHnd) != 0 ? 7 : -1;
            }),
            {},
            "",
            2,
            kDeterministic,
            kHnd},
           {"depends_on_paging",
            "the last bit differs between packed and paged keys",
            {kPaged, kPacked},
            with_nudge([](Tamper&, const AttentionParams& p, const HostRow& r) {
              return r.i == 0 && (p.features & kPackedKv) != 0 ? 7 : -1;
            }),
            {},
            "",
            2,
            kPagingInvariant,
            kPackedKv | kPagedKv},
           {"depends_on_batch_order",
            "the last bit depends on the place in the batch",
            {kPaged, kPacked},
            with_nudge([](Tamper&, const AttentionParams& p, const HostRow& r) {
              return p.batch > 1 && r.seq == 0 && r.i == 0 ? 7 : -1;
            }),
            {},
            "",
            2,
            kBatchInvariant},
           {"depends_on_batch_size",
            "the last bit depends on how many sequences there are",
            {kPaged, kPacked},
            with_nudge([](Tamper&, const AttentionParams& p, const HostRow& r) {
              return p.batch > 1 && r.i == 0 ? 7 : -1;
            }),
            {},
            "",
            2,
            kBatchInvariant},
           {"depends_on_first_row",
            "the last bit depends on cu_seqlens[0]",
            {kPaged, kPacked},
            with_nudge([](Tamper& t, const AttentionParams& p, const HostRow& r) {
              return r.i == 0 && t.read<int32_t>(p.cu_seqlens_q, 1)[0] > 0 ? 7 : -1;
            }),
            {},
            "",
            2,
            kDeterministic},
           {"prefix_state_wrong",
            "rows that do not see the diagonal lose their last key",
            {kPaged, kPacked},
            with_params([](Tamper& t, AttentionParams& p) {
              if (!(p.features & kCausal))
                change_lengths(t, p, [](int, int32_t k) { return std::max(0, k - 1); });
            })}}};
}

}  // namespace attnbench
