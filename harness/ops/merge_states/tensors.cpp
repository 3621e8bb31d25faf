// The tensors of a merge_states.
#include "harness/config/keys.h"
#include "harness/ops/merge_states/tensors_states.h"
#include "harness/ops/tensors_ops.h"
#include "harness/tensors/descales.h"
#include "harness/tensors/shared_tensors.h"

namespace attnbench::ops::merge_states {
namespace {

MergeStatesParams shape_of(const CaseParams& p, bool padded) {
  MergeStatesParams m{};
  // The bit of a type is that of the states, not of `dtype`.
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
  const LseStrides lse = partial_lse_strides(p, padded);
  m.lse_stride_state = lse.state;
  m.lse_stride_token = lse.token;
  m.lse_stride_head = lse.head;
  m.out_lse_stride_head = m.num_rows + (padded ? kPadRow : 0);
  m.out_lse_stride_token = token_major_stride(p, padded);
  return m;
}

OpParams shape(const Case& c, bool padded) { return op_params(shape_of(c.params, padded)); }

void plan(const Case& c, const LayoutVariant&, WorkloadPlan& plan) {
  plan.source_owners = partial_out_owners(c);
}

OutputLayout layout_of(const MergeStatesParams& m) {
  return {m.num_rows,
          m.num_heads,
          m.head_dim,
          {m.out_stride_token, m.out_stride_head},
          m.out_lse_stride_head,
          m.out_lse_stride_token};
}

void add(Workload& w) {
  const Case& c = w.item();
  const CaseParams& p = c.params;
  const std::vector<RowOwner>& owners = w.plan().source_owners;
  const MergeStatesParams m = shape_of(p, w.padded());
  const int64_t from_token = p.ragged_states ? m.partial_stride_state : m.partial_stride_token;
  // Each head is a row, and a block is the heads of one token. The tokens of all states follow each other
  // without gaps.
  FillJob job = token_job(c, Tensor::kPartialO, p.type_of_partial(), std::ssize(owners), 1, p.head_dim,
                          {m.partial_stride_head, 0});
  job.block_size = m.num_heads;
  job.stride_block = from_token;
  const auto partial_size = static_cast<int64_t>(dtype_size(p.type_of_partial()));
  w.add_rows("partial_out", job, owners, std::ssize(owners) / m.num_heads * from_token * partial_size,
             token_rows(SignsOf::kV, p.type_of_partial(), p.num_heads_q, p.head_dim));
  w.add_input("partial_lse", partial_lse_tensor(c, w.padded()));
  if (p.ragged_states) w.add_cu_seqlens("state_indptr", state_indptr_of(c));
  w.add("out", Role::kOutput,
        m.num_rows * m.out_stride_token * static_cast<int64_t>(dtype_size(p.type_of_out())),
        token_rows(SignsOf::kV, p.type_of_out(), p.num_heads_q, p.head_dim));
  if (p.e4m3_out) w.add_input("out_scale", std::vector<float>{out_scale_of(c)});
  w.add("lse", Role::kOutput, layout_of(m).lse_bytes());
}

void point(const Workload& w, OpParams& op) {
  MergeStatesParams& m = op.merge_states;
  m.partial_out = w.data("partial_out");
  m.partial_lse = w.data<float>("partial_lse");
  m.state_indptr = w.data<int32_t>("state_indptr");
  if (w.item().params.ragged_states) m.total_states = state_indptr_of(w.item()).back();
  m.out = w.data("out");
  m.out_scale = w.data<float>("out_scale");
  m.out_lse = w.data<float>("lse");
}

HostOutputs download(const Workload& w) {
  HostOutputs h;
  download_o_and_lse(w, layout_of(shape_of(w.item().params, w.padded())), h);
  return h;
}

void spoil(BadLaunch how, OpParams& op) {
  MergeStatesParams& p = op.merge_states;
  if (how == BadLaunch::kFeature) p.features |= kNoFeature;
  if (how == BadLaunch::kDType) p.dtype_out = DType::kInt8;
  if (how == BadLaunch::kHeadDim) p.head_dim = 0;
  if (how == BadLaunch::kHeads) p.num_heads = 0;
  if (how == BadLaunch::kPointer) p.partial_out = nullptr;
}

std::vector<Written> written(const OpParams& op) {
  const MergeStatesParams& p = op.merge_states;
  return {{p.out, p.num_rows * p.out_stride_token, p.dtype_out},
          {p.out_lse, layout_of(p).lse_bytes() / int64_t{sizeof(float)}, DType::kFp32, false}};
}

}  // namespace

const TensorsOps kTensorsOps = {shape, plan, add, nullptr, point, download, spoil, written};

}  // namespace attnbench::ops::merge_states
