// The launch parameters of a case that need no memory.
#include <algorithm>
#include <cmath>

#include "harness/cases/paths.h"
#include "harness/config/keys.h"
#include "harness/workload/key_lists.h"
#include "harness/workload/merge_inputs.h"
#include "harness/workload/workload.h"

namespace attnbench {
namespace {

RotaryParams rotary_shape(const CaseParams& p) {
  RotaryParams r{};
  if (p.rotary == Rotary::kNone) return r;
  r.dim = p.rotary_width();
  r.interleaved = p.rotary == Rotary::kInterleaved ? 1 : 0;
  r.q_position = p.rotary_q;
  return r;
}

/// Stride of a token in an LSE of tokens and heads; 0 if heads are outside.
int64_t token_major_stride(const CaseParams& p, bool padded) {
  return p.out_lse_token_major ? p.num_heads_q + (padded ? kPadRow : 0) : 0;
}

MergeStatesParams merge_shape(const CaseParams& p, bool padded) {
  MergeStatesParams m{};
  constexpr uint64_t kOwn = kLseBase2 | kLseTokenMajor | kRaggedStates | kInfLse | kE4m3Out;
  m.features = feature_of(p.type_of_partial()) | (features_of(p) & kOwn);
  m.num_states = p.states;
  m.num_heads = p.num_heads_q;
  m.head_dim = p.head_dim;
  m.dtype_partial = p.type_of_partial();
  m.dtype_out = p.type_of_out();
  m.num_rows = merge_rows(p);
  const TokenStrides from = token_strides(p.num_heads_q, p.head_dim, padded ? Pad::kPartialOut : Pad::kNone);
  const TokenStrides to = token_strides(p.num_heads_q, p.head_dim, padded ? Pad::kOut : Pad::kNone);
  m.partial_stride_token = from.token;
  m.partial_stride_head = from.head;
  m.out_stride_token = to.token;
  m.out_stride_head = to.head;
  m.partial_stride_state = m.num_rows * m.partial_stride_token;
  if (p.ragged_states) {  // one list of states, each of which is like a token
    m.partial_stride_state = m.partial_stride_token;
    m.partial_stride_token = 0;
  }
  const LseStrides lse = partial_lse_strides(p);
  m.lse_stride_state = lse.state;
  m.lse_stride_token = lse.token;
  m.lse_stride_head = lse.head;
  m.out_lse_stride_head = m.num_rows + (padded ? kPadRow : 0);
  m.out_lse_stride_token = token_major_stride(p, padded);
  return m;
}

ScaleParams scale_shape(const CaseParams& p, bool is_v, bool padded) {
  ScaleParams s{};
  if (p.computes_scales(is_v)) {
    const KvStrides of = row_scale_strides(p, is_v, padded);
    s.stride_block = of.block;
    s.stride_token = of.token;
    s.stride_head = of.head;
  } else if (p.quantises(is_v)) {
    const GivenScaleStrides of = given_scale_strides(p, is_v, padded);
    s.given_stride_head = of.head;
    s.given_stride_channel = of.channel;
  }
  return s;
}

Pad pad_if(bool padded, Pad of) { return padded ? of : Pad::kNone; }

KvAppendParams append_shape(const CaseParams& p, bool padded) {
  KvAppendParams a{};
  a.features = features_of(p);
  a.num_heads_kv = p.num_heads_kv;
  a.head_dim = p.head_dim;
  a.head_dim_v = p.dim_v();
  a.dtype_in = p.dtype;
  if (p.query_out != QueryOut::kNone) {
    a.num_heads_q = p.num_heads_q;
    a.dtype_query_out = p.query_out == QueryOut::kE4m3 ? DType::kE4m3 : p.dtype;
    const TokenStrides from = token_strides(p.num_heads_q, p.head_dim, pad_if(padded, Pad::kQ));
    a.query_stride_token = from.token;
    a.query_stride_head = from.head;
    const TokenStrides to = token_strides(p.num_heads_q, p.head_dim, pad_if(padded, Pad::kOut));
    a.query_out_stride_token = to.token;
    a.query_out_stride_head = to.head;
  }
  a.dtype_k = p.type_of_k();
  a.dtype_v = p.type_of_v();
  a.block_size = p.block_size;
  const TokenStrides key = token_strides(p.num_heads_kv, p.head_dim, pad_if(padded, Pad::kNewK));
  a.key_stride_token = key.token;
  a.key_stride_head = key.head;
  const TokenStrides value = token_strides(p.num_heads_kv, p.dim_v(), pad_if(padded, Pad::kNewV));
  a.value_stride_token = value.token;
  a.value_stride_head = value.head;
  const KvStrides k = kv_strides(p, false, padded);
  a.k_stride_block = k.block;
  a.k_stride_token = k.token;
  a.k_stride_head = k.head;
  const KvStrides v = kv_strides(p, true, padded);
  a.v_stride_block = v.block;
  a.v_stride_token = v.token;
  a.v_stride_head = v.head;
  for (const SeqLen& len : p.seqs) a.num_tokens += len.q;
  a.num_tokens += p.padding_tokens;
  a.rotary = rotary_shape(p);
  a.k_scale = scale_shape(p, false, padded);
  a.v_scale = scale_shape(p, true, padded);
  return a;
}

KvMoveParams move_shape(const CaseParams& p, bool padded) {
  KvMoveParams m{};
  m.features = features_of(p);
  m.num_heads_kv = p.num_heads_kv;
  m.head_dim = p.head_dim;
  m.head_dim_v = p.dim_v();
  m.block_size = p.block_size;
  m.dtype_k = p.type_of_k();
  m.dtype_v = p.type_of_v();
  m.dtype_out = p.dtype;
  const auto set = [](const KvStrides& s, int64_t& block, int64_t& token, int64_t& head) {
    block = s.block;
    token = s.token;
    head = s.head;
  };
  set(kv_strides(p, false, padded), m.k_src_stride_block, m.k_src_stride_token, m.k_src_stride_head);
  set(kv_strides(p, true, padded), m.v_src_stride_block, m.v_src_stride_token, m.v_src_stride_head);
  set(cache_strides(p, false, padded), m.k_dst_stride_block, m.k_dst_stride_token, m.k_dst_stride_head);
  set(cache_strides(p, true, padded), m.v_dst_stride_block, m.v_dst_stride_token, m.v_dst_stride_head);
  if (p.gathers()) {
    m.batch = static_cast<int32_t>(p.seqs.size());
    for (std::size_t b = 0; b < p.seqs.size(); ++b) m.total_k += p.seqs[b].k - p.start_of(b);
  } else {
    for (const SeqLen& s : p.seqs) m.num_pairs += move_copies(p, s.k);
  }
  return m;
}

void set_types(const CaseParams& p, AttentionParams& a) {
  a.num_heads_q = p.num_heads_q;
  a.num_heads_kv = p.num_heads_kv;
  a.head_dim = p.head_dim;
  a.head_dim_v = p.dim_v();
  a.dtype_q = p.type_of_q();
  a.dtype_k = p.type_of_k();
  a.dtype_v = p.type_of_v();
  a.dtype_k_new = p.type_of_new(false);
  a.dtype_v_new = p.type_of_new(true);
  a.dtype_out = p.type_of_out();
}

void set_descale_strides(const CaseParams& p, bool padded, AttentionParams& a) {
  const DescaleStrides q = descale_strides(p, Tensor::kQ, padded);
  a.q_descale_stride_outer = q.outer;
  a.q_descale_stride_head = q.head;
  const DescaleStrides k = descale_strides(p, Tensor::kK, padded);
  a.k_descale_stride_outer = k.outer;
  a.k_descale_stride_head = k.head;
  const DescaleStrides v = descale_strides(p, Tensor::kV, padded);
  a.v_descale_stride_outer = v.outer;
  a.v_descale_stride_head = v.head;
  if (p.type_of_k() == DType::kInt8) {
    const KvStrides rows = row_scale_strides(p, false, padded);
    a.k_descale_stride_block = rows.block;
    a.k_descale_stride_outer = rows.token;
    a.k_descale_stride_head = rows.head;
  }
}

void set_block_scales(const CaseParams& p, bool padded, AttentionParams& a) {
  if (p.scale_block() == 0) return;
  a.scale_block = p.scale_block();
  a.dtype_block_scale = p.type_of_block_scale();
  const KvStrides k = block_scale_strides(p, false, padded);
  a.k_block_scale_stride_block = k.block;
  a.k_block_scale_stride_token = k.token;
  a.k_block_scale_stride_head = k.head;
  const KvStrides v = block_scale_strides(p, true, padded);
  a.v_block_scale_stride_block = v.block;
  a.v_block_scale_stride_token = v.token;
  a.v_block_scale_stride_head = v.head;
  if (p.k_tail() == 0) return;
  a.k_tail_stride_block = a.k_stride_block / 2;
  a.k_tail_stride_token = a.k_stride_token / 2;
  a.k_tail_stride_head = a.k_stride_head / 2;
}

void set_tensor_strides(const CaseParams& p, bool padded, AttentionParams& a) {
  const TokenStrides q = token_strides(p.num_heads_q, p.head_dim, pad_if(padded, Pad::kQ));
  a.q_stride_token = q.token;
  a.q_stride_head = q.head;
  if (p.qv) {
    const TokenStrides qv = token_strides(p.num_heads_q, p.dim_v(), pad_if(padded, Pad::kQv));
    a.qv_stride_token = qv.token;
    a.qv_stride_head = qv.head;
  }
  const TokenStrides out = token_strides(p.num_heads_q, p.dim_v(), pad_if(padded, Pad::kOut));
  a.out_stride_token = out.token;
  a.out_stride_head = out.head;
  const KvStrides k = kv_strides(p, false, padded);
  a.k_stride_block = k.block;
  a.k_stride_token = k.token;
  a.k_stride_head = k.head;
  const KvStrides v = kv_strides(p, true, padded);
  a.v_stride_block = v.block;
  a.v_stride_token = v.token;
  a.v_stride_head = v.head;
  a.block_size = p.kv == KvSource::kPaged ? p.block_size : 0;
  a.shared_prefix = p.path == Path::kOneCall ? p.shared_tokens() : 0;
  a.cache_capacity = p.kv == KvSource::kContiguous ? k.rows : 0;
  const TokenStrides k_new = token_strides(p.num_heads_kv, p.head_dim, pad_if(padded, Pad::kNewK));
  a.k_new_stride_token = k_new.token;
  a.k_new_stride_head = k_new.head;
  const TokenStrides v_new = token_strides(p.num_heads_kv, p.head_dim, pad_if(padded, Pad::kNewV));
  a.v_new_stride_token = v_new.token;
  a.v_new_stride_head = v_new.head;
}

/// Lengths, and the strides that follow from them.
void set_lengths(const CaseParams& p, bool padded, AttentionParams& a) {
  a.batch = static_cast<int32_t>(p.seqs.size());
  for (const SeqLen& len : p.seqs) {
    a.max_seqlen_q = std::max(a.max_seqlen_q, len.q);
    a.max_seqlen_k = std::max(a.max_seqlen_k, len.k);
    a.total_new += p.new_len(len);
  }
  a.total_q = packed_q_begins(p).back();
  a.lse_stride_head = a.total_q + (padded ? kPadRow : 0);
  a.lse_stride_token = token_major_stride(p, padded);
  a.probs_stride_token = a.max_seqlen_k + (padded ? kPadRow : 0);
  a.probs_stride_head = a.total_q * a.probs_stride_token;
}

AttentionParams attention_shape(const Case& item, bool padded) {
  const CaseParams& p = item.params;
  AttentionParams a{};
  a.features = features_of(p);
  set_types(p, a);
  set_descale_strides(p, padded, a);
  set_tensor_strides(p, padded, a);
  set_block_scales(p, padded, a);
  set_lengths(p, padded, a);
  a.rotary = rotary_shape(p);
  a.causal = p.causal ? 1 : 0;
  a.window_left = p.window_left;
  a.window_right = p.window_right;
  a.attention_chunk = p.attention_chunk;
  a.topk = p.topk;
  if (p.topk > 0) {
    const KeyListStrides lists = key_list_strides(p, padded);
    a.topk_stride_token = lists.token;
    a.topk_stride_head = lists.head;
  }
  a.softmax_scale = softmax_scale_of(p);
  a.softcap = static_cast<float>(p.softcap);
  a.num_splits = p.num_splits;
  a.alibi_stride_batch = p.alibi == Alibi::kPerSequence ? p.num_heads_q + (padded ? kPadRow : 0) : 0;
  a.alibi_sqrt = p.alibi_sqrt ? 1 : 0;
  if (p.dropout > 0) {
    a.p_dropout = static_cast<float>(p.dropout);
    a.dropout_seed = item.seed;
    a.dropout_offset = kDropoutOffset;
  }
  return a;
}

AttentionBackwardParams backward_shape(const Case& item, bool padded) {
  const CaseParams& p = item.params;
  const AttentionParams a = attention_shape(item, padded);  // what a forward pass of the case is given
  AttentionBackwardParams g{};
  g.features = a.features;
  g.batch = a.batch;
  g.num_heads_q = p.num_heads_q;
  g.num_heads_kv = p.num_heads_kv;
  g.head_dim = p.head_dim;
  g.head_dim_v = p.dim_v();
  g.dtype = p.dtype;
  g.total_q = a.total_q;
  for (const SeqLen& len : p.seqs) g.total_k += len.k;
  g.max_seqlen_q = a.max_seqlen_q;
  g.max_seqlen_k = a.max_seqlen_k;
  g.q_stride_token = a.q_stride_token;
  g.q_stride_head = a.q_stride_head;
  g.k_stride_token = a.k_stride_token;
  g.k_stride_head = a.k_stride_head;
  g.v_stride_token = a.v_stride_token;
  g.v_stride_head = a.v_stride_head;
  g.out_stride_token = a.out_stride_token;
  g.out_stride_head = a.out_stride_head;
  g.lse_stride_head = a.lse_stride_head;
  const auto set = [&](int64_t& token, int64_t& head, int32_t heads, int32_t dim, Pad pad) {
    const TokenStrides s = token_strides(heads, dim, pad_if(padded, pad));
    token = s.token;
    head = s.head;
  };
  set(g.d_out_stride_token, g.d_out_stride_head, p.num_heads_q, p.dim_v(), Pad::kDOut);
  set(g.dq_stride_token, g.dq_stride_head, p.num_heads_q, p.head_dim, Pad::kDq);
  set(g.dk_stride_token, g.dk_stride_head, p.num_heads_kv, p.head_dim, Pad::kDk);
  set(g.dv_stride_token, g.dv_stride_head, p.num_heads_kv, p.dim_v(), Pad::kDv);
  g.causal = a.causal;
  g.window_left = a.window_left;
  g.window_right = a.window_right;
  g.softmax_scale = a.softmax_scale;
  g.softcap = a.softcap;
  g.alibi_sqrt = a.alibi_sqrt;
  g.alibi_stride_batch = a.alibi_stride_batch;
  g.p_dropout = a.p_dropout;
  g.dropout_seed = a.dropout_seed;
  g.dropout_offset = a.dropout_offset;
  return g;
}

}  // namespace

OpParams Workload::shape_params(const Case& item, bool padded) {
  OpParams op{};
  op.op = item.params.op;
  switch (op.op) {
    case Op::kAttention:
      op.attention = attention_shape(item, padded);
      break;
    case Op::kKvAppend:
      op.kv_append = append_shape(item.params, padded);
      break;
    case Op::kMergeStates:
      op.merge_states = merge_shape(item.params, padded);
      break;
    case Op::kAttentionBackward:
      op.attention_backward = backward_shape(item, padded);
      break;
    case Op::kKvMove:
      op.kv_move = move_shape(item.params, padded);
      break;
  }
  return op;
}

}  // namespace attnbench
