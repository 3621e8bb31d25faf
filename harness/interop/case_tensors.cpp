#include "harness/interop/case_tensors.h"

#include <algorithm>

#include "harness/cases/kv_rows.h"
#include "harness/config/captured.h"

namespace attnbench {
namespace {

/// Collects the tensors that a launch has.
class Collector {
 public:
  void add(const char* name, Element type, std::vector<int64_t> shape, const void* data,
           std::vector<int64_t> strides = {}) {
    if (data != nullptr) out_.push_back({name, type, std::move(shape), data, std::move(strides)});
  }
  void add_int32(const char* name, std::vector<int64_t> shape, const int32_t* data) {
    add(name, Element::kI32, std::move(shape), data);
  }
  void add_float(const char* name, std::vector<int64_t> shape, const float* data) {
    add(name, Element::kF32, std::move(shape), data);
  }
  std::vector<TensorView> take() && { return std::move(out_); }

 private:
  std::vector<TensorView> out_;
};

std::vector<int64_t> in_blocks(const CaseParams& p, int64_t blocks, int64_t rows) {
  if (p.kv_layout == KvLayout::kHnd) return {blocks, p.num_heads_kv, rows};
  return {blocks, rows, p.num_heads_kv};
}

/// Shape of K or V without its last dimension, the channels.
std::vector<int64_t> kv_rows(const Workload& w, const AttentionParams& a) {
  const CaseParams& p = w.item().params;
  if (p.kv == KvSource::kPacked) return {w.plan().cu_seqlens_k.back(), p.num_heads_kv};
  return in_blocks(p, a.num_blocks, p.kv == KvSource::kPaged ? a.block_size : a.cache_capacity);
}

std::vector<int64_t> with(std::vector<int64_t> shape, int64_t last) {
  shape.push_back(last);
  return shape;
}

std::vector<int64_t> slopes_shape(int64_t stride_batch, int64_t batch, int64_t heads) {
  return stride_batch > 0 ? std::vector<int64_t>{batch, heads} : std::vector<int64_t>{heads};
}

template <class T>
void zero_nan(void* data, int64_t count, T exponent, T fraction) {
  T* bits = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    if ((bits[i] & exponent) == exponent && (bits[i] & fraction) != 0) bits[i] = 0;
  }
}

/// Inputs are numbers, so NaN is poison. int8 and e2m1 have none: there the scale is NaN. `ds_mla_rows`: bytes of the
/// rows of fp8_ds_mla, which are poison as a whole.
void zero_poison(const TensorView& t, bool ds_mla_rows) {
  void* data = const_cast<void*>(t.data);  // the export's own workload
  const int64_t count = element_count(t.shape);
  switch (t.type) {
    case Element::kBf16:
      return zero_nan<uint16_t>(data, count, 0x7f80, 0x007f);
    case Element::kF16:
      return zero_nan<uint16_t>(data, count, 0x7c00, 0x03ff);
    case Element::kF32:
      return zero_nan<uint32_t>(data, count, 0x7f800000u, 0x007fffffu);
    case Element::kE4m3:  // only all bits one are NaN
      std::replace_if(
          static_cast<uint8_t*>(data), static_cast<uint8_t*>(data) + count,
          [](uint8_t bits) { return (bits & 0x7f) == 0x7f; }, uint8_t{0});
      return;
    case Element::kE5m2:
      return zero_nan<uint8_t>(data, count, 0x7c, 0x03);
    case Element::kU8:
      for (int64_t at = 0; ds_mla_rows && at < count; at += t.shape.back()) {
        auto* row = static_cast<uint8_t*>(data) + at;
        if ((row[0] & 0x7f) == 0x7f) std::fill_n(row, t.shape.back(), uint8_t{0});
      }
      return;
    case Element::kI32:
      if (t.name != "block_table") return;
      for (int64_t i = 0; i < count; ++i) {
        auto& block = static_cast<int32_t*>(data)[i];
        if (std::count(std::begin(kJunkBlocks), std::end(kJunkBlocks), block) > 0) block = 0;
      }
      return;
    default:
      return;
  }
}

int64_t table_rows(const Workload& workload) {
  const auto stride = std::max<int64_t>(workload.plan().block_table_stride, 1);
  return std::ssize(workload.plan().block_table) / stride;
}

std::vector<TensorView> attention_inputs(Workload& workload) {
  const CaseParams& p = workload.item().params;
  const AttentionParams a = workload.params().attention;
  const int64_t batch = a.batch, heads = a.num_heads_q, kv_heads = a.num_heads_kv;
  const std::vector<int64_t> rows = kv_rows(workload, a);
  Collector c;
  c.add("q", element_for(a.dtype_q), {a.total_q, heads, a.head_dim}, a.q);
  c.add("qv", element_for(a.dtype_q), {a.total_q, heads, a.head_dim_v}, a.qv);
  const bool ds_mla = p.kv_dtype == KvDType::kDsMla;
  c.add("k", ds_mla ? Element::kU8 : element_for(a.dtype_k), with(rows, row_elements(p, false)), a.k);
  if (!p.v_is_k_view) c.add("v", element_for(a.dtype_v), with(rows, row_elements(p, true)), a.v);
  for (const bool is_v : {false, true}) {
    if (has_scale_tensor(p, is_v))
      c.add(is_v ? "v_block_scale" : "k_block_scale", element_for(a.dtype_block_scale),
            with(rows, block_scales(p, is_v)), is_v ? a.v_block_scale : a.k_block_scale);
  }
  c.add_float("out_scale", {1}, a.out_scale);
  c.add_int32("cu_seqlens_q", {batch + 1}, a.cu_seqlens_q);
  c.add_int32("cu_seqlens_k", {batch + 1}, a.cu_seqlens_k);
  c.add_int32("seqused_q", {batch}, a.seqused_q);
  c.add_int32("seqused_k", {batch}, a.seqused_k);
  c.add_int32("block_table", {table_rows(workload), a.block_table_stride}, a.block_table);
  c.add_int32("cache_batch_idx", {batch}, a.cache_batch_idx);
  c.add_int32("cache_leftpad", {batch}, a.cache_leftpad);
  if (p.append) {
    c.add("k_new", element_for(a.dtype_k_new), {a.total_new, kv_heads, a.head_dim}, a.k_new);
    c.add("v_new", element_for(a.dtype_v_new), {a.total_new, kv_heads, a.head_dim}, a.v_new);
    c.add_int32("cu_seqlens_new", {batch + 1}, a.cu_seqlens_new);
  }
  c.add_float("rotary_cos", {a.rotary.positions, a.rotary.dim / 2}, a.rotary.cos);
  c.add_float("rotary_sin", {a.rotary.positions, a.rotary.dim / 2}, a.rotary.sin);
  c.add_float("alibi_slopes", slopes_shape(a.alibi_stride_batch, batch, heads), a.alibi_slopes);
  c.add_float("sinks", {heads}, a.sinks);
  if (a.topk_indices != nullptr) {
    c.add_int32("topk_indices", {a.total_q, kv_heads, a.topk}, a.topk_indices);
    c.add_int32("topk_length", {a.total_q}, a.topk_length);
  }
  if (a.custom_mask != nullptr) {
    int32_t bytes = 0;
    workload.device().download(&bytes, a.mask_indptr + batch, sizeof bytes);
    c.add("custom_mask", Element::kU8, {bytes}, a.custom_mask);
    c.add_int32("mask_indptr", {batch + 1}, a.mask_indptr);
  }
  const auto shared = [&](int64_t stride_outer, int64_t stride_head) {  // where a stride is 0
    return stride_head == 0    ? std::vector<int64_t>{1}
           : stride_outer == 0 ? std::vector<int64_t>{kv_heads}
                               : std::vector<int64_t>{batch, kv_heads};
  };
  const bool of_channels = a.dtype_v == DType::kInt8 || (a.features & kVChannelScales) != 0;
  const auto blocks_of = [&](const int32_t* begins, int64_t rows_of) {
    int32_t all = 0;
    if (begins == nullptr) return rows_of;
    workload.device().download(&all, begins + batch, sizeof all);
    return int64_t{all};
  };
  std::vector<int64_t> k_blocks = rows;
  if (a.cu_k_descales != nullptr) {
    k_blocks = {blocks_of(a.cu_k_descales, 0), kv_heads};
  } else if (a.k_descale_rows > 1) {
    k_blocks = in_blocks(p, a.num_blocks, row_scale_strides(p, false, false).rows);
  }
  c.add_int32("cu_q_descales", {batch + 1}, a.cu_q_descales);
  c.add_int32("cu_k_descales", {batch + 1}, a.cu_k_descales);
  c.add_float("q_descale",
              a.dtype_q == DType::kInt8 ? std::vector<int64_t>{blocks_of(a.cu_q_descales, a.total_q), heads}
                                        : shared(a.q_descale_stride_outer, a.q_descale_stride_head),
              a.q_descale);
  c.add_float("k_descale",
              p.row_descales(false) ? k_blocks : shared(a.k_descale_stride_outer, a.k_descale_stride_head),
              a.k_descale);
  c.add_float("v_descale",
              p.row_descales(true) ? rows
              : of_channels        ? std::vector<int64_t>{kv_heads, a.head_dim_v}
                                   : shared(a.v_descale_stride_outer, a.v_descale_stride_head),
              a.v_descale);
  return std::move(c).take();
}

/// O and LSE are those of this machine's forward pass.
std::vector<TensorView> backward_inputs(Workload& workload) {
  const AttentionBackwardParams g = workload.params().attention_backward;
  const Element type = element_for(g.dtype);
  const int64_t heads = g.num_heads_q, kv_heads = g.num_heads_kv;
  Collector c;
  c.add("q", type, {g.total_q, heads, g.head_dim}, g.q);
  c.add("k", type, {g.total_k, kv_heads, g.head_dim}, g.k);
  c.add("v", type, {g.total_k, kv_heads, g.head_dim_v}, g.v);
  c.add("out", type, {g.total_q, heads, g.head_dim_v}, g.out);
  c.add_float("lse", {heads, g.total_q}, g.lse);
  c.add("d_out", type, {g.total_q, heads, g.head_dim_v}, g.d_out);
  c.add_int32("cu_seqlens_q", {g.batch + 1}, g.cu_seqlens_q);
  c.add_int32("cu_seqlens_k", {g.batch + 1}, g.cu_seqlens_k);
  c.add_float("alibi_slopes", slopes_shape(g.alibi_stride_batch, g.batch, heads), g.alibi_slopes);
  c.add_float("sinks", {heads}, g.sinks);
  return std::move(c).take();
}

std::vector<TensorView> append_inputs(Workload& w) {
  const KvAppendParams a = w.params().kv_append;
  const Element in = element_for(a.dtype_in);
  Collector c;
  c.add("key", in, {a.num_tokens, a.num_heads_kv, a.head_dim}, a.key);
  c.add("value", in, {a.num_tokens, a.num_heads_kv, a.head_dim_v}, a.value);
  c.add("slot_mapping", Element::kI64, {a.num_tokens}, a.slot_mapping);
  c.add("positions", Element::kI64, {a.num_tokens}, a.positions64);
  c.add_int32("positions", {a.num_tokens}, a.positions);
  c.add_float("rotary_cos", {a.rotary.positions, a.rotary.dim / 2}, a.rotary.cos);
  c.add_float("rotary_sin", {a.rotary.positions, a.rotary.dim / 2}, a.rotary.sin);
  c.add("query", in, {a.num_tokens, a.num_heads_q, a.head_dim}, a.query);
  c.add_float("query_scale", {1}, a.query_scale);
  for (const bool is_v : {false, true}) {
    const ScaleParams& s = is_v ? a.v_scale : a.k_scale;
    std::vector<int64_t> shape = {s.given_stride_head > 0 ? a.num_heads_kv : 1};
    if (s.given_stride_channel > 0) shape.push_back(is_v ? a.head_dim_v : a.head_dim);
    c.add_float(is_v ? "v_scale" : "k_scale", shape, s.given);
  }
  for (const OutputTensor& o : output_tensors(w)) {
    if (o.name != "query_out") c.add((o.name + "_before").c_str(), element_for(o.type), o.shape, o.data);
  }
  return std::move(c).take();
}

std::vector<TensorView> move_inputs(Workload& w) {
  const CaseParams& p = w.item().params;
  const KvMoveParams m = w.params().kv_move;
  const std::vector<int64_t> rows = in_blocks(p, m.num_blocks_src, m.block_size);
  Collector c;
  if (m.k_src != m.k_dst) {
    c.add("k_src", element_for(m.dtype_k), with(rows, m.head_dim), m.k_src);
    c.add("v_src", element_for(m.dtype_v), with(rows, m.head_dim_v), m.v_src);
  }
  c.add("block_pairs", Element::kI64, {m.num_pairs, 2}, m.block_pairs);
  c.add_int32("block_table", {m.batch, m.block_table_stride}, m.block_table);
  c.add_int32("cu_seqlens", {m.batch + 1}, m.cu_seqlens);
  c.add_int32("seq_starts", {m.batch}, m.seq_starts);
  c.add_float("k_descale", {1}, m.k_descale);
  c.add_float("v_descale", {1}, m.v_descale);
  for (const OutputTensor& o : output_tensors(w))
    c.add((o.name + "_before").c_str(), element_for(o.type), o.shape, o.data);
  return std::move(c).take();
}

std::vector<TensorView> merge_inputs(Workload& w) {
  const MergeStatesParams m = w.params().merge_states;
  Collector c;
  std::vector<int64_t> states = {m.num_states, m.num_rows, m.num_heads},
                       strides = {m.lse_stride_state, m.lse_stride_token, m.lse_stride_head};
  if (m.state_indptr != nullptr) {
    states = {m.total_states, m.num_heads};
    strides.erase(strides.begin() + 1);
  }
  c.add("partial_out", element_for(m.dtype_partial), with(states, m.head_dim), m.partial_out);
  c.add("partial_lse", Element::kF32, states, m.partial_lse, strides);
  c.add_int32("state_indptr", {m.num_rows + 1}, m.state_indptr);
  c.add_float("out_scale", {1}, m.out_scale);
  return std::move(c).take();
}

/// The caches, computed scales and queries that kv_append leaves.
std::vector<OutputTensor> append_outputs(Workload& w) {
  const CaseParams& p = w.item().params;
  const KvAppendParams a = w.params().kv_append;
  const std::vector<int64_t> rows = in_blocks(p, a.num_blocks, a.block_size);
  std::vector<OutputTensor> outputs;
  if (p.one_row) {  // rows of V and K
    outputs.push_back({"k_cache", a.dtype_k, with(rows, a.head_dim_v + a.head_dim), a.v_cache});
  } else {
    outputs.push_back({"k_cache", a.dtype_k, with(rows, a.head_dim), a.k_cache});
    outputs.push_back({"v_cache", a.dtype_v, with(rows, a.head_dim_v), a.v_cache});
  }
  if (a.k_scale.computed != nullptr) outputs.push_back({"k_scales", DType::kFp32, rows, a.k_scale.computed});
  if (a.v_scale.computed != nullptr) outputs.push_back({"v_scales", DType::kFp32, rows, a.v_scale.computed});
  if (a.query_out != nullptr)
    outputs.push_back(
        {"query_out", a.dtype_query_out, {a.num_tokens, a.num_heads_q, a.head_dim}, a.query_out});
  return outputs;
}

std::vector<OutputTensor> move_outputs(Workload& w) {
  const CaseParams& p = w.item().params;
  const KvMoveParams m = w.params().kv_move;
  const std::vector<int64_t> rows = p.gathers()
                                        ? std::vector<int64_t>{std::ssize(w.plan().kv_owners), p.num_heads_kv}
                                        : in_blocks(p, m.num_blocks_dst, m.block_size);
  std::vector<OutputTensor> outputs = {
      {"k_dst", p.gathers() ? m.dtype_out : m.dtype_k, with(rows, m.head_dim), m.k_dst}};
  if (m.v_dst != nullptr)
    outputs.push_back({"v_dst", p.gathers() ? m.dtype_out : m.dtype_v, with(rows, m.head_dim_v), m.v_dst});
  return outputs;
}

/// O and LSE of attention or merge_states.
std::vector<OutputTensor> o_and_lse(const CaseParams& p, int64_t rows, DType type, void* out, float* lse) {
  const int64_t heads = p.num_heads_q;
  const OutputTensor o = {"out", type, {rows, heads, p.dim_v()}, out};
  if (p.out_lse_token_major) return {o, {"lse", DType::kFp32, {rows, heads}, lse}};
  return {o, {"lse", DType::kFp32, {heads, rows}, lse, 1}};
}

}  // namespace

Element element_for(DType t) {
  // In the order of DType.
  constexpr Element kElements[] = {Element::kBf16, Element::kF16,  Element::kF32, Element::kE4m3,
                                   Element::kI8,   Element::kE5m2, Element::kU8};
  return kElements[static_cast<int32_t>(t)];
}

std::vector<TensorView> input_tensors(Workload& workload, bool zeros) {
  const CaseParams& p = workload.item().params;
  std::vector<TensorView> tensors = p.does().gradients ? backward_inputs(workload)
                                    : p.does().attends ? attention_inputs(workload)
                                    : p.does().appends ? append_inputs(workload)
                                    : p.does().moves   ? move_inputs(workload)
                                                       : merge_inputs(workload);
  for (const TensorView& t : tensors) {
    if (zeros) zero_poison(t, p.kv_dtype == KvDType::kDsMla && t.name == "k");
  }
  return tensors;
}

std::vector<int64_t> FileRows::shape(const OutputTensor& t) const {
  std::vector<int64_t> shape = t.shape;
  if (!of.empty()) shape[t.row_axis] = count;
  return shape;
}

FileRows file_rows(const Workload& workload) {
  const CaseParams& p = workload.item().params;
  if (!p.captured) return {};
  const std::vector<int32_t>& begins = workload.plan().cu_seqlens_q;
  FileRows rows{p.captured->q_rows(),
                std::vector<int64_t>(static_cast<std::size_t>(workload.plan().total_q), -1)};
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    for (int32_t i = 0; i < p.seqs[b].q; ++i)
      rows.of[static_cast<std::size_t>(begins[b] + i)] = p.captured->q_row(static_cast<int32_t>(b), i);
  }
  return rows;
}

std::vector<OutputTensor> output_tensors(Workload& workload) {
  const CaseParams& p = workload.item().params;
  if (p.does().gradients) {
    const AttentionBackwardParams g = workload.params().attention_backward;
    std::vector<OutputTensor> outputs = {{"dq", g.dtype, {g.total_q, g.num_heads_q, g.head_dim}, g.dq},
                                         {"dk", g.dtype, {g.total_k, g.num_heads_kv, g.head_dim}, g.dk},
                                         {"dv", g.dtype, {g.total_k, g.num_heads_kv, g.head_dim_v}, g.dv}};
    if (p.sinks) outputs.push_back({"dsinks", DType::kFp32, {g.num_heads_q}, g.dsinks});
    return outputs;
  }
  if (p.does().appends) return append_outputs(workload);
  if (p.does().moves) return move_outputs(workload);
  if (p.does().merges) {
    const MergeStatesParams m = workload.params().merge_states;
    return o_and_lse(p, m.num_rows, m.dtype_out, m.out, m.out_lse);
  }
  const AttentionParams a = workload.params().attention;
  std::vector<OutputTensor> outputs = o_and_lse(p, a.total_q, a.dtype_out, a.out, a.lse);
  if (p.probs)
    outputs.push_back({"probs", DType::kFp32, {a.num_heads_q, a.total_q, a.max_seqlen_k}, a.probs, 1});
  if (p.append) {
    const std::vector<int64_t> rows = kv_rows(workload, a);
    outputs.push_back({"k_cache", a.dtype_k, with(rows, row_elements(p, false)), a.k_cache});
    outputs.push_back({"v_cache", a.dtype_v, with(rows, row_elements(p, true)), a.v_cache});
  }
  return outputs;
}

}  // namespace attnbench
