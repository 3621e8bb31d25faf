// The tensors of attention_backward. O and LSE, which are inputs, come from an attention kernel of the device
// whose sums are float32, as in training: O is rounded once.
#include <string>

#include "harness/error.h"
#include "harness/ops/attention/tensors_parts.h"
#include "harness/ops/attention_backward/tensors_shared.h"
#include "harness/ops/tensors_ops.h"

namespace attnbench::ops::attention_backward {
namespace {

int64_t size_of(DType t) { return static_cast<int64_t>(dtype_size(t)); }

void set_shared(const AttentionParams& forward, AttentionBackwardParams& g) {
  for_shared(forward, g, [](const auto& from, auto& to) { to = from; });
}

AttentionBackwardParams shape_of(const Case& item, bool padded) {
  const CaseParams& p = item.params;
  AttentionBackwardParams g{};
  set_shared(attention::shape_of(item, padded), g);
  g.dtype = p.dtype;
  for (const SeqLen& len : p.seqs) g.total_k += len.k;
  const auto set = [&](int64_t& token, int64_t& head, int32_t heads, int32_t dim, Pad pad) {
    set_strides(token_strides(heads, dim, pad_if(padded, pad)), token, head);
  };
  set(g.d_out_stride_token, g.d_out_stride_head, p.num_heads_q, p.dim_v(), Pad::kDOut);
  set(g.dq_stride_token, g.dq_stride_head, p.num_heads_q, p.head_dim, Pad::kDq);
  set(g.dk_stride_token, g.dk_stride_head, p.num_heads_kv, p.head_dim, Pad::kDk);
  set(g.dv_stride_token, g.dv_stride_head, p.num_heads_kv, p.dim_v(), Pad::kDv);
  return g;
}

OpParams shape(const Case& c, bool padded) { return op_params(shape_of(c, padded)); }

void plan(const Case& c, const LayoutVariant& variant, WorkloadPlan& plan) {
  plan_rows(c.params, c.seed, variant, plan);
}

void add(Workload& w) {
  const CaseParams& p = w.item().params;
  const WorkloadPlan& plan = w.plan();
  const AttentionBackwardParams g = shape_of(w.item(), w.padded());
  const int64_t e = size_of(p.dtype), total_k = plan.cu_seqlens_k.back();
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  w.add_cache("k", false, Role::kInput);
  w.add_cache("v", true, Role::kInput);
  w.add_tokens("q", Tensor::kQ, p.dtype, plan.q_owners, p.num_heads_q, p.head_dim,
               {g.q_stride_token, g.q_stride_head}, SignsOf::kQk);
  w.add_tokens("d_out", Tensor::kDOut, p.dtype, plan.q_owners, p.num_heads_q, p.dim_v(),
               {g.d_out_stride_token, g.d_out_stride_head}, SignsOf::kV);
  // Rows of no sequence stay poison.
  const auto add_poison = [&](const char* name, int64_t bytes, const Rows& rows) {
    w.add(name, Role::kInput, bytes, rows);
    if (bytes > 0) w.device().set_bytes(w.data(name), 0xff, bytes);
  };
  add_poison("out", plan.total_q * g.out_stride_token * e,
             token_rows(SignsOf::kV, p.dtype, p.num_heads_q, p.dim_v(), group));
  add_poison("lse", p.num_heads_q * lse_stride(plan.total_q, w.padded()) * int64_t{sizeof(float)}, {});
  add_lengths(w);
  add_score_terms(w);
  w.add("dq", Role::kOutput, plan.total_q * g.dq_stride_token * e,
        token_rows(SignsOf::kQk, p.dtype, p.num_heads_q, p.head_dim, group));
  w.add("dk", Role::kOutput, total_k * g.dk_stride_token * e,
        token_rows(SignsOf::kQk, p.dtype, p.num_heads_kv, p.head_dim));
  w.add("dv", Role::kOutput, total_k * g.dv_stride_token * e,
        token_rows(SignsOf::kV, p.dtype, p.num_heads_kv, p.dim_v()));
  if (p.sinks) w.add("dsinks", Role::kOutput, p.num_heads_q * int64_t{sizeof(float)});
}

/// A forward pass on the inputs, which writes the inputs O and LSE.
OpParams forward_of(const Workload& w) {
  OpParams op = op_params(attention::shape_of(w.item(), w.padded()));
  attention::point(w, op);
  return op;
}

void point(const Workload& w, OpParams& op) {
  AttentionBackwardParams& g = op.attention_backward;
  const AttentionParams forward = forward_of(w).attention;
  set_shared(forward, g);
  g.total_k = w.plan().cu_seqlens_k.back();
  g.out = forward.out;
  g.lse = forward.lse;
  g.d_out = w.data("d_out");
  g.dq = w.data("dq");
  g.dk = w.data("dk");
  g.dv = w.data("dv");
  g.dsinks = w.data<float>("dsinks");
}

/// Computes the inputs O and LSE.
void run_forward(Workload& w) {
  const Kernel* forward = w.variant().forward;
  if (forward == nullptr) return;
  const OpParams op = forward_of(w);
  LaunchContext context = w.device().launch_context();
  KernelMessage message{};
  const auto check = [&](KernelStatus status) {
    if (status != KernelStatus::kOk)
      throw Error(std::string("the forward pass that computes O and LSE failed: ") + message.text,
                  kExitFailure);
  };
  check(forward->supports(&op, &context, &message));
  const std::size_t wanted = forward->workspace_bytes ? forward->workspace_bytes(&op, &context) : 0;
  const GuardedBuffer workspace(w.device(), "workspace of the forward pass", static_cast<int64_t>(wanted));
  context.workspace = workspace.data();
  context.workspace_bytes = wanted;
  if (forward->plan) check(forward->plan(&op, &context, &message));
  check(forward->launch(&op, &context, &message));
  w.device().synchronize();
}

/// The gradients of a launch, dense. Drops the leading rows that belong to no sequence.
HostOutputs download(const Workload& w) {
  HostOutputs h;
  const AttentionBackwardParams g = w.params().attention_backward;
  const int64_t e = size_of(g.dtype);
  const auto dense = [&](const char* name, int64_t rows, int64_t token, int64_t heads, int64_t head,
                         int64_t dim, int64_t lead) {
    std::vector<unsigned char> host = w.download(name);
    if (w.padded())
      host = without_padding(std::move(host), {rows, token * e, heads, head * e, dim * e}, name, h.stray);
    host.erase(host.begin(), host.begin() + lead * heads * dim * e);
    return host;
  };
  const int64_t lead_q = w.plan().cu_seqlens_q.front(), lead_k = w.plan().cu_seqlens_k.front();
  h.dq = dense("dq", g.total_q, g.dq_stride_token, g.num_heads_q, g.dq_stride_head, g.head_dim, lead_q);
  h.dk = dense("dk", g.total_k, g.dk_stride_token, g.num_heads_kv, g.dk_stride_head, g.head_dim, lead_k);
  h.dv = dense("dv", g.total_k, g.dv_stride_token, g.num_heads_kv, g.dv_stride_head, g.head_dim_v, lead_k);
  h.dsinks = w.download<float>("dsinks");
  return h;
}

void spoil(BadLaunch how, OpParams& op) {
  AttentionBackwardParams& p = op.attention_backward;
  if (how == BadLaunch::kFeature) p.features |= kNoFeature;
  if (how == BadLaunch::kDType) p.dtype = DType::kInt8;
  if (how == BadLaunch::kHeadDim) p.head_dim = 0;
  if (how == BadLaunch::kHeads) p.num_heads_q = p.num_heads_kv > 1 ? p.num_heads_q + 1 : 0;
  if (how == BadLaunch::kPointer) p.q = nullptr;
}

std::vector<Written> written(const OpParams& op) {
  const AttentionBackwardParams& p = op.attention_backward;
  std::vector<Written> out = {{p.dq, p.total_q * p.dq_stride_token, p.dtype},
                              {p.dk, p.total_k * p.dk_stride_token, p.dtype},
                              {p.dv, p.total_k * p.dv_stride_token, p.dtype}};
  if (p.dsinks) out.push_back({p.dsinks, p.num_heads_q, DType::kFp32});
  return out;
}

}  // namespace

const TensorsOps kTensorsOps = {shape, plan, add, run_forward, point, download, spoil, written};

}  // namespace attnbench::ops::attention_backward
