#include "harness/tensors/shared_tensors.h"

#include <numbers>

namespace attnbench {

void add_lengths(Workload& w) {
  w.add_cu_seqlens("cu_seqlens_q", w.plan().cu_seqlens_q);
  if (w.item().params.kv == KvSource::kPacked) w.add_cu_seqlens("cu_seqlens_k", w.plan().cu_seqlens_k);
}

void add_score_terms(Workload& w) {
  const std::vector<float> slopes = alibi_slopes_of(w.item(), w.variant()), sinks = sinks_of(w.item());
  if (!slopes.empty()) w.add_input("alibi_slopes", slopes);
  if (!sinks.empty()) w.add_input("sinks", sinks);
}

void add_rotary_tables(Workload& w) {
  if (w.item().params.rotary == Rotary::kNone) return;
  const RotaryTables tables = rotary_tables_of(w.item());
  w.add_input("rotary cos", tables.cos);
  w.add_input("rotary sin", tables.sin);
}

RotaryParams rotary_shape(const CaseParams& p) {
  RotaryParams r{};
  if (p.rotary == Rotary::kNone) return r;
  r.dim = p.rotary_width();
  r.interleaved = p.rotary == Rotary::kInterleaved ? 1 : 0;
  r.q_position = p.rotary_q;
  return r;
}

void set_rotary_tables(const Workload& w, RotaryParams& r) {
  if (w.item().params.rotary == Rotary::kNone) return;
  r.cos = w.data<float>("rotary cos");
  r.sin = w.data<float>("rotary sin");
  r.positions = w.item().params.rotary_positions();
}

namespace {

void make_lse_plain(const CaseParams& p, HostOutputs& h) {
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

}  // namespace

void download_o_and_lse(const Workload& w, OutputLayout l, HostOutputs& h, const std::vector<int64_t>* rows) {
  if (rows == nullptr) {
    h.out = w.download("out");
    h.lse = w.download<float>("lse");
  } else {
    const HostBytes out = w.download_cache("out"), lse = w.download_cache("lse");
    h.out = rows_of(out.data(), 1, out.size(), l.rows, out.size() / l.rows, *rows);
    const bool by_token = l.lse_stride_token > 0;
    const int64_t pad = l.lse_stride_head - l.rows, all = lse.size() / int64_t{sizeof(float)};
    h.lse = rows_of(reinterpret_cast<const float*>(lse.data()), by_token ? 1 : l.heads,
                    by_token ? all : l.lse_stride_head, l.rows, by_token ? l.lse_stride_token : 1, *rows);
    l.rows = std::ssize(*rows);
    l.lse_stride_head = l.rows + pad;
  }
  if (w.padded()) {
    const auto e = static_cast<int64_t>(dtype_size(w.item().params.type_of_out()));
    h.out = without_padding(std::move(h.out), {l.rows, l.out.token * e, l.heads, l.out.head * e, l.width * e},
                            "out", h.stray);
    const bool token_major = l.lse_stride_token > 0;
    const Extents lse = token_major ? Extents{l.rows, l.lse_stride_token, 1, 0, l.heads}
                                    : Extents{l.heads, l.lse_stride_head, 1, 0, l.rows};
    h.lse = without_padding(std::move(h.lse), lse, "lse", h.stray);
  }
  make_lse_plain(w.item().params, h);
}

}  // namespace attnbench
