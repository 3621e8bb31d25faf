// What a backward pass and its forward pass are given alike.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::ops::attention_backward {

/// Calls f(x, y) with each member of a forward pass and the same one of its backward pass.
template <class Forward, class Backward, class F>
void for_shared(Forward& a, Backward& g, const F& f) {
  f(a.features, g.features);
  f(a.batch, g.batch);
  f(a.num_heads_q, g.num_heads_q);
  f(a.num_heads_kv, g.num_heads_kv);
  f(a.head_dim, g.head_dim);
  f(a.head_dim_v, g.head_dim_v);
  f(a.total_q, g.total_q);
  f(a.max_seqlen_q, g.max_seqlen_q);
  f(a.max_seqlen_k, g.max_seqlen_k);
  f(a.cu_seqlens_q, g.cu_seqlens_q);
  f(a.cu_seqlens_k, g.cu_seqlens_k);
  f(a.q, g.q);
  f(a.q_stride_token, g.q_stride_token);
  f(a.q_stride_head, g.q_stride_head);
  f(a.k, g.k);
  f(a.k_stride_token, g.k_stride_token);
  f(a.k_stride_head, g.k_stride_head);
  f(a.v, g.v);
  f(a.v_stride_token, g.v_stride_token);
  f(a.v_stride_head, g.v_stride_head);
  f(a.out_stride_token, g.out_stride_token);
  f(a.out_stride_head, g.out_stride_head);
  f(a.lse_stride_head, g.lse_stride_head);
  f(a.causal, g.causal);
  f(a.window_left, g.window_left);
  f(a.window_right, g.window_right);
  f(a.softmax_scale, g.softmax_scale);
  f(a.softcap, g.softcap);
  f(a.alibi_sqrt, g.alibi_sqrt);
  f(a.alibi_slopes, g.alibi_slopes);
  f(a.alibi_stride_batch, g.alibi_stride_batch);
  f(a.sinks, g.sinks);
  f(a.p_dropout, g.p_dropout);
  f(a.dropout_seed, g.dropout_seed);
  f(a.dropout_offset, g.dropout_offset);
}

}  // namespace attnbench::ops::attention_backward
