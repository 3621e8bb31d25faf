// The tensors of a launch of attention.
#include <algorithm>

#include "harness/cases/kv_rows.h"
#include "harness/ops/attention/tensors_custom_mask.h"
#include "harness/ops/attention/tensors_key_lists.h"
#include "harness/ops/attention/tensors_parts.h"
#include "harness/ops/tensors_ops.h"
#include "harness/tensors/descales.h"

namespace attnbench::ops::attention {
namespace {

int64_t size_of(DType t) { return static_cast<int64_t>(dtype_size(t)); }

OpParams shape(const Case& c, bool padded) { return op_params(shape_of(c, padded)); }

void add_block_scales(Workload& w) {
  const CaseParams& p = w.item().params;
  for (const bool is_v : {false, true}) {
    if (!has_scale_tensor(p, is_v)) continue;
    const KvStrides s = block_scale_strides(p, is_v, w.padded());
    FillJob job = w.cache_job(is_v);
    job.dtype = p.type_of_block_scale();
    job.block_scales = true;
    job.head_dim = static_cast<int32_t>(block_scales(p, is_v));
    job.stride_block = s.block;
    job.stride_token = s.token;
    job.stride_head = s.head;
    job.owners = w.kv_owners();
    const auto fill = [&w, job](void* to) mutable {
      job.base = to;
      w.device().fill(job);
    };
    w.add(is_v ? "v_block_scale" : "k_block_scale", Role::kInput,
          s.elements(job.num_rows) * size_of(job.dtype), {}, fill,
          {.behind = w.kv_tail() * s.token * size_of(job.dtype)});
  }
}

void add_new_rows(Workload& w, const AttentionParams& a) {
  const CaseParams& p = w.item().params;
  const std::vector<RowOwner>& tokens = w.plan().token_owners;
  w.add_tokens("k_new", Tensor::kNewK, p.type_of_new(false), tokens, p.num_heads_kv, p.head_dim,
               {a.k_new_stride_token, a.k_new_stride_head}, SignsOf::kQk);
  w.add_tokens("v_new", Tensor::kNewV, p.type_of_new(true), tokens, p.num_heads_kv, p.dim_v(),
               {a.v_new_stride_token, a.v_new_stride_head}, SignsOf::kV);
  w.add_cu_seqlens("cu_seqlens_new", w.plan().cu_seqlens_new);
}

/// The rows that O does not have, the LSE does not have, either.
SeenPart seen_of_lse(const AttentionParams& a, const SeenPart& of_out) {
  SeenPart seen;
  const bool token_major = a.lse_stride_token > 0;
  const int64_t width = (token_major ? a.lse_stride_token : 1) * int64_t{sizeof(float)};
  for (int64_t h = 0; h < (token_major ? 1 : a.num_heads_q); ++h) {
    const int64_t head = h * a.lse_stride_head * int64_t{sizeof(float)};
    for (const ByteRange& hole : of_out.holes)
      seen.holes.push_back(
          {head + hole.begin / of_out.row_bytes * width, head + hole.end / of_out.row_bytes * width});
  }
  return seen;
}

void add_outputs(Workload& w, const AttentionParams& a) {
  const CaseParams& p = w.item().params;
  const int64_t row_bytes = a.out_stride_token * size_of(p.type_of_out());
  const SeenPart seen =
      w.seen_of_cache(token_job(w.item(), Tensor::kQ, p.type_of_out(), a.total_q, p.num_heads_q, p.dim_v(),
                                {a.out_stride_token, a.out_stride_head}),
                      w.plan().q_owners);
  w.add("out", Role::kOutput, a.total_q * row_bytes,
        token_rows(SignsOf::kV, p.type_of_out(), p.num_heads_q, p.dim_v(), p.num_heads_q / p.num_heads_kv),
        nullptr, seen);
  if (p.e4m3_out) w.add_input("out_scale", std::vector<float>{out_scale_of(w.item())});
  w.add("lse", Role::kOutput, layout_of(a).lse_bytes(), {}, nullptr, seen_of_lse(a, seen));
  if (p.probs)
    w.add("probs", Role::kOutput, p.num_heads_q * a.total_q * a.probs_stride_token * int64_t{sizeof(float)});
}

/// Follows the plan, whose leading rows a shape does not know.
void set_rows(const Workload& w, AttentionParams& a) {
  a.total_q = w.plan().total_q;
  a.lse_stride_head = lse_stride(a.total_q, w.padded());
  a.probs_stride_head = a.total_q * a.probs_stride_token;
}

void add(Workload& w) {
  const Case& c = w.item();
  const CaseParams& p = c.params;
  const WorkloadPlan& plan = w.plan();
  AttentionParams a = shape_of(c, w.padded());
  set_rows(w, a);
  w.add_cache(p.append ? "k_cache" : "k", false, p.append ? Role::kState : Role::kInput);
  if (!p.v_is_k_view) w.add_cache(p.append ? "v_cache" : "v", true, p.append ? Role::kState : Role::kInput);
  add_block_scales(w);
  add_rotary_tables(w);
  if (p.append) add_new_rows(w, a);
  w.add_tokens("q", Tensor::kQ, p.type_of_q(), plan.q_owners, p.num_heads_q, p.head_dim,
               {a.q_stride_token, a.q_stride_head}, SignsOf::kQk);
  if (p.qv) {
    w.add_tokens("qv", Tensor::kQv, p.dtype, plan.q_owners, p.num_heads_q, p.dim_v(),
                 {a.qv_stride_token, a.qv_stride_head}, SignsOf::kV);
  }
  add_outputs(w, a);
  add_lengths(w);
  if (p.kv == KvSource::kPaged) w.add_input("block_table", plan.block_table, {0});
  const auto if_any = [&](const char* name, const auto& host) {
    if (!host.empty()) w.add_input(name, host);
  };
  const auto stale_if_any = [&](const char* name, const std::vector<int32_t>& host, int32_t entry) {
    if (!host.empty()) w.add_input(name, host, {entry});
  };
  stale_if_any("seqused_q", plan.seqused_q, 1);
  stale_if_any("seqused_k", plan.seqused_k, 1);
  stale_if_any("cache_batch_idx", plan.cache_batch_idx, 0);
  stale_if_any("cache_leftpad", plan.cache_leftpad, 0);
  const PackedMask mask = packed_mask_of(c, w.variant());
  if_any("custom_mask", mask.bytes);
  stale_if_any("mask_indptr", mask.indptr, 0);
  const KeyListTensors lists = key_list_tensors(c, plan, w.variant());
  if_any("topk_indices", lists.indices);
  if_any("topk_length", lists.lengths);
  add_score_terms(w);
  if (p.q_descale_rows > 1)
    w.add_cu_seqlens("cu_q_descales", descale_begins(p, Tensor::kQ, p.q_descale_rows));
  if (p.k_descale_rows > 1 && p.kv == KvSource::kPacked)
    w.add_cu_seqlens("cu_k_descales", descale_begins(p, Tensor::kK, p.k_descale_rows));
  // Descales per token, or per row of K or V, have the rows of poison, too.
  const auto with_tail = [&](const char* name, const std::vector<float>& host, bool by_row, int64_t tail) {
    if (!host.empty()) w.add_input_and_stale(name, host, by_row ? tail : 0);
  };
  with_tail("q_descale", q_descales_of(c, plan, w.variant()), p.type_of_q() == DType::kInt8,
            kTailRows * descale_strides(p, Tensor::kQ, w.padded()).outer);
  for (const bool is_v : {false, true}) {
    with_tail(is_v ? "v_descale" : "k_descale", kv_descales_of(c, plan, w.variant(), is_v),
              p.row_descales(is_v), w.kv_tail() * row_scale_strides(p, is_v, w.padded()).token);
  }
}

void point_at_block_scales(const Workload& w, AttentionParams& a) {
  const CaseParams& p = w.item().params;
  if (p.scale_block() == 0) return;
  a.k_block_scale = w.data("k_block_scale");
  a.v_block_scale = p.v_is_k_view ? a.k_block_scale : w.data("v_block_scale");
  if (p.kv_dtype != KvDType::kDsMla || a.k == nullptr) return;
  const DsMlaRow row = ds_mla_row(p);
  const char* rows = static_cast<const char*>(a.k);
  a.k_block_scale = a.v_block_scale = rows + row.latent;
  a.k_tail = rows + row.latent + row.scales;
}

}  // namespace

void point(const Workload& w, OpParams& op) {
  AttentionParams& a = op.attention;
  const CaseParams& p = w.item().params;
  set_rows(w, a);
  a.num_blocks = w.plan().num_blocks;
  a.q = w.data("q");
  a.qv = w.data("qv");
  a.k = w.data(p.append ? "k_cache" : "k");
  a.v = p.v_is_k_view ? a.k : w.data(p.append ? "v_cache" : "v");
  a.cu_seqlens_q = w.data<int32_t>("cu_seqlens_q");
  a.cu_seqlens_k = w.data<int32_t>("cu_seqlens_k");
  a.seqused_q = w.data<int32_t>("seqused_q");
  a.seqused_k = w.data<int32_t>("seqused_k");
  a.block_table = w.data<int32_t>("block_table");
  a.block_table_stride = w.plan().block_table_stride;
  a.cache_batch_idx = w.data<int32_t>("cache_batch_idx");
  a.cache_leftpad = w.data<int32_t>("cache_leftpad");
  a.custom_mask = w.data<uint8_t>("custom_mask");
  a.mask_indptr = w.data<int32_t>("mask_indptr");
  a.topk_indices = w.data<int32_t>("topk_indices");
  a.topk_length = w.data<int32_t>("topk_length");
  if (p.append) {
    a.k_new = w.data("k_new");
    a.v_new = w.data("v_new");
    a.cu_seqlens_new = w.data<int32_t>("cu_seqlens_new");
    a.total_new = w.plan().cu_seqlens_new.back();
    a.k_cache = w.data("k_cache");
    a.v_cache = w.data("v_cache");
  }
  set_rotary_tables(w, a.rotary);
  a.alibi_slopes = w.data<float>("alibi_slopes");
  a.sinks = w.data<float>("sinks");
  a.cu_q_descales = w.data<int32_t>("cu_q_descales");
  a.cu_k_descales = w.data<int32_t>("cu_k_descales");
  a.q_descale = w.data<float>("q_descale");
  a.k_descale = w.data<float>("k_descale");
  a.v_descale = w.data<float>("v_descale");
  point_at_block_scales(w, a);
  a.out = w.data("out");
  a.out_scale = w.data<float>("out_scale");
  a.lse = w.data<float>("lse");
  a.probs = w.data<float>("probs");
}

namespace {

void spoil(BadLaunch how, OpParams& op) {
  AttentionParams& p = op.attention;
  switch (how) {
    case BadLaunch::kNone:
      break;
    case BadLaunch::kFeature:
      p.features |= kNoFeature;
      break;
    case BadLaunch::kDType:
      p.dtype_out = DType::kInt8;
      break;
    case BadLaunch::kHeadDim:
      p.head_dim = 0;
      break;
    case BadLaunch::kHeads:  // no multiple of the KV heads
      p.num_heads_q = p.num_heads_kv > 1 ? p.num_heads_q + 1 : 0;
      break;
    case BadLaunch::kBlockSize:
      p.block_size = 0;
      break;
    case BadLaunch::kNumSplits:  // splits that no feature bit announces
      p.features &= ~uint64_t{kSplitKv};
      p.num_splits = std::max(p.num_splits, 4);
      break;
    case BadLaunch::kBlockTable:  // rows too short for the longest sequence
      p.block_table_stride = std::max(0, (p.max_seqlen_k - 1) / p.block_size);
      break;
    case BadLaunch::kPointer:
      p.q = nullptr;
      break;
  }
}

std::vector<Written> written(const OpParams& op) {
  const AttentionParams& p = op.attention;
  std::vector<Written> out = {
      {p.out, p.total_q * p.out_stride_token, p.dtype_out},
      {p.lse, layout_of(p).lse_bytes() / int64_t{sizeof(float)}, DType::kFp32, false}};
  if (p.features & kAppend) {
    out.push_back({p.k_cache, p.num_blocks * p.k_stride_block, p.dtype_k, false});
    out.push_back({p.v_cache, p.num_blocks * p.v_stride_block, p.dtype_v, false});
  }
  if (p.features & kProbs) out.push_back({p.probs, p.num_heads_q * p.probs_stride_head, DType::kFp32, false});
  return out;
}

}  // namespace

const TensorsOps kTensorsOps = {shape, plan, add, nullptr, point, download, spoil, written};

}  // namespace attnbench::ops::attention
