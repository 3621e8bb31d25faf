// The tensors of attention_backward. O and LSE, which are inputs, come from an attention kernel of the device
// whose sums are float32, as in training: O is rounded once.
#include <new>
#include <stdexcept>

#include "harness/error.h"
#include "harness/workload/workload.h"

namespace attnbench {
namespace {

int64_t size_of(DType t) { return static_cast<int64_t>(dtype_size(t)); }

/// What a forward pass on the inputs of `g` is given.
OpParams forward_of(const AttentionBackwardParams& g) {
  OpParams op{};
  op.op = Op::kAttention;
  AttentionParams& a = op.attention;
  a.features = g.features;
  a.batch = g.batch;
  a.num_heads_q = g.num_heads_q;
  a.num_heads_kv = g.num_heads_kv;
  a.head_dim = g.head_dim;
  a.head_dim_v = g.head_dim_v;
  a.total_q = g.total_q;
  a.max_seqlen_q = g.max_seqlen_q;
  a.max_seqlen_k = g.max_seqlen_k;
  a.dtype_q = a.dtype_k = a.dtype_v = a.dtype_out = g.dtype;
  a.q = g.q;
  a.q_stride_token = g.q_stride_token;
  a.q_stride_head = g.q_stride_head;
  a.cu_seqlens_q = g.cu_seqlens_q;
  a.k = g.k;
  a.k_stride_token = g.k_stride_token;
  a.k_stride_head = g.k_stride_head;
  a.v = g.v;
  a.v_stride_token = g.v_stride_token;
  a.v_stride_head = g.v_stride_head;
  a.cu_seqlens_k = g.cu_seqlens_k;
  a.causal = g.causal;
  a.window_left = g.window_left;
  a.window_right = g.window_right;
  a.softmax_scale = g.softmax_scale;
  a.softcap = g.softcap;
  a.alibi_slopes = g.alibi_slopes;
  a.alibi_stride_batch = g.alibi_stride_batch;
  a.alibi_sqrt = g.alibi_sqrt;
  a.sinks = g.sinks;
  a.out = const_cast<void*>(g.out);
  a.out_stride_token = g.out_stride_token;
  a.out_stride_head = g.out_stride_head;
  a.lse = const_cast<float*>(g.lse);
  a.lse_stride_head = g.lse_stride_head;
  a.p_dropout = g.p_dropout;
  a.dropout_seed = g.dropout_seed;
  a.dropout_offset = g.dropout_offset;
  return op;
}

}  // namespace

void Workload::make_backward(const LayoutVariant& variant) {
  const CaseParams& p = item_.params;
  const AttentionBackwardParams g = shape_params(item_, padded_).attention_backward;
  const int64_t e = size_of(p.dtype);
  const int64_t total_k = plan_.cu_seqlens_k.back();
  make_caches();
  make_tokens(kQ, "q", Tensor::kQ, p.dtype, plan_.q_owners, p.num_heads_q,
              {g.q_stride_token, g.q_stride_head}, p.head_dim);
  make_tokens(kDOut, "d_out", Tensor::kDOut, p.dtype, plan_.q_owners, p.num_heads_q,
              {g.d_out_stride_token, g.d_out_stride_head}, p.dim_v());
  // Rows of no sequence stay poison.
  const auto poison = [this](const GuardedBuffer& b) {
    if (b.bytes() > 0) device_->set_bytes(b.data(), 0xff, b.bytes());
  };
  poison(make(kOut, Role::kInput, "out", plan_.total_q * g.out_stride_token * e));
  poison(make(kLse, Role::kInput, "lse", p.num_heads_q * lse_stride(plan_.total_q) * int64_t{sizeof(float)}));
  make_lengths();
  make_score_terms(variant);
  make(kDq, Role::kOutput, "dq", plan_.total_q * g.dq_stride_token * e);
  make(kDk, Role::kOutput, "dk", total_k * g.dk_stride_token * e);
  make(kDv, Role::kOutput, "dv", total_k * g.dv_stride_token * e);
  if (p.sinks) make(kDsinks, Role::kOutput, "dsinks", p.num_heads_q * int64_t{sizeof(float)});
}

void Workload::set_backward_pointers(AttentionBackwardParams& g) const {
  g.total_q = plan_.total_q;
  g.total_k = plan_.cu_seqlens_k.back();
  g.lse_stride_head = lse_stride(plan_.total_q);
  g.cu_seqlens_q = data<int32_t>(kCuSeqlensQ);
  g.cu_seqlens_k = data<int32_t>(kCuSeqlensK);
  g.q = data(kQ);
  g.k = data(kK);
  g.v = data(kV);
  g.out = data(kOut);
  g.lse = data<float>(kLse);
  g.d_out = data(kDOut);
  g.alibi_slopes = data<float>(kAlibiSlopes);
  g.sinks = data<float>(kSinks);
  g.dq = data(kDq);
  g.dk = data(kDk);
  g.dv = data(kDv);
  g.dsinks = data<float>(kDsinks);
}

void Workload::run_forward() {
  const OpParams op = forward_of(params().attention_backward);
  LaunchContext context = device_->launch_context();
  KernelMessage message{};
  const auto check = [&](KernelStatus status) {
    if (status != KernelStatus::kOk)
      throw Error(std::string("the forward pass that computes O and LSE failed: ") + message.text,
                  kExitFailure);
  };
  check(forward_->supports(&op, &context, &message));
  const std::size_t wanted = forward_->workspace_bytes ? forward_->workspace_bytes(&op, &context) : 0;
  const GuardedBuffer workspace(*device_, "workspace of the forward pass", static_cast<int64_t>(wanted));
  context.workspace = workspace.data();
  context.workspace_bytes = wanted;
  if (forward_->plan) check(forward_->plan(&op, &context, &message));
  check(forward_->launch(&op, &context, &message));
  device_->synchronize();
}

void Workload::scale_d_out(float factor) {
  const GuardedBuffer& b = memory(kDOut);
  const DType t = item_.params.dtype;
  std::vector<unsigned char> host(static_cast<std::size_t>(b.bytes()));
  if (host.empty()) return;
  device_->download(host.data(), b.data(), b.bytes());
  for (int64_t i = 0; i < b.bytes() / size_of(t); ++i)
    store_float(t, host.data(), i, factor * load_float(t, host.data(), i));
  device_->upload(b.data(), host.data(), b.bytes());
  remember_inputs();
}

/// The gradients of a launch, dense. Drops the leading rows that belong to no sequence.
HostOutputs Workload::gradients() const {
  HostOutputs h;
  const auto fetch = [&](auto& host, const GuardedBuffer& b) {
    try {
      host.resize(static_cast<std::size_t>(b.bytes()) / sizeof(host[0]));
    } catch (const std::bad_alloc&) {
      throw TooLarge("not enough host memory for a copy of " + b.name());
    }
    if (b.bytes() > 0) device_->download(host.data(), b.data(), b.bytes());
  };
  fetch(h.dq, memory(kDq));
  fetch(h.dk, memory(kDk));
  fetch(h.dv, memory(kDv));
  fetch(h.dsinks, memory(kDsinks));
  take_signs_off(h);
  const AttentionBackwardParams g = params().attention_backward;
  const int64_t e = size_of(g.dtype);
  const auto dense = [&](std::vector<unsigned char>& host, const char* name, int64_t rows, int64_t token,
                         int64_t heads, int64_t head, int64_t dim, int64_t lead) {
    if (padded_)
      host = without_padding(std::move(host), {rows, token * e, heads, head * e, dim * e}, name, h.stray);
    host.erase(host.begin(), host.begin() + lead * heads * dim * e);
  };
  const int64_t lead_q = plan_.cu_seqlens_q.front(), lead_k = plan_.cu_seqlens_k.front();
  dense(h.dq, "dq", g.total_q, g.dq_stride_token, g.num_heads_q, g.dq_stride_head, g.head_dim, lead_q);
  dense(h.dk, "dk", g.total_k, g.dk_stride_token, g.num_heads_kv, g.dk_stride_head, g.head_dim, lead_k);
  dense(h.dv, "dv", g.total_k, g.dv_stride_token, g.num_heads_kv, g.dv_stride_head, g.head_dim_v, lead_k);
  return h;
}

}  // namespace attnbench
