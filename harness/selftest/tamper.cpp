#include "harness/selftest/tamper.h"

#include <algorithm>

#include "harness/launch/last_words.h"
#include "harness/launch/launcher.h"
#include "harness/ops/op.h"

namespace attnbench {

Tamper* Tamper::armed_ = nullptr;

int64_t kv_elements(const AttentionParams& p, const std::vector<int32_t>& cu_seqlens_k, bool is_v) {
  if (p.features & kPackedKv)
    return int64_t{cu_seqlens_k.back()} * (is_v ? p.v_stride_token : p.k_stride_token);
  return int64_t{p.num_blocks} * (is_v ? p.v_stride_block : p.k_stride_block);
}

const Kernel& Tamper::armed(Fault fault) {
  armed_ = this;
  fault_ = std::move(fault);
  launches_ = 0;
  refusal_.clear();
  kept_.clear();
  kernel_ = *good_;
  kernel_.plan = nullptr;
  kernel_.workspace_bytes = decorated_workspace;
  kernel_.launch = decorated;
  kernel_.flags &=
      ~static_cast<uint32_t>(kReturnsOutputs);  // launch() takes the outputs, so that faults see them
  return kernel_;
}

void Tamper::take_all() {
  kernel_.supports = [](const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; };
}

std::size_t Tamper::decorated_workspace(const OpParams* p, const LaunchContext* c) {
  const Kernel& good = *armed_->good_;
  return std::max(good.workspace_bytes ? good.workspace_bytes(p, c) : 0, kWorkspace);
}

KernelStatus Tamper::decorated(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  Tamper& t = *armed_;
  ++t.launches_;
  t.kept_.clear();
  t.context_ = c;
  t.message_ = m;
  return t.fault_(t, *p);
}

KernelStatus Tamper::launch(const OpParams& p) {
  LaunchContext context = *context_;
  KernelMessage why{};
  const auto call = [&](const char* name, auto&& function) {
    const KernelCall in_hand(name, good_->name);
    return function();
  };
  if (check_features(*good_, p, &why) != KernelStatus::kOk ||
      call("supports", [&] { return good_->supports(&p, &context, &why); }) != KernelStatus::kOk) {
    refusal_ = why.text;
    return KernelStatus::kOk;  // run_fault reports the fault as not applicable, whatever the outputs are
  }
  const std::size_t wanted =
      good_->workspace_bytes ? call("workspace_bytes", [&] { return good_->workspace_bytes(&p, &context); })
                             : 0;
  if (wanted > context.workspace_bytes) {
    kept_.push_back(GuardedBuffer(*device_, "workspace", static_cast<int64_t>(wanted)));
    context.workspace = kept_.back().data();
    context.workspace_bytes = wanted;
  }
  if (good_->plan) {
    const KernelStatus s = call("plan", [&] { return good_->plan(&p, &context, message_); });
    if (s != KernelStatus::kOk) return s;
  }
  ReturnedOutputs returned{};
  if ((good_->flags & kReturnsOutputs) != 0) context.returned = &returned;
  const KernelStatus s = call("launch", [&] { return good_->launch(&p, &context, message_); });
  if (context.returned != nullptr)
    for (const ReturnedTensor& t : returned_tensors(p.attention, returned)) device_->take_returned(t);
  device_->synchronize();
  return s;
}

KernelStatus Tamper::launch(const AttentionParams& p) { return launch(op_params(p)); }

OutView Tamper::output(const AttentionParams& p) {
  OutView view{&p, {}, {}};
  const int64_t elements = p.total_q * p.out_stride_token;
  view.out = read<unsigned char>(p.out, elements * static_cast<int64_t>(dtype_size(p.dtype_out)));
  view.lse = read<float>(p.lse, lse_elements(p));
  return view;
}

void Tamper::edit(const AttentionParams& p, const std::function<void(OutView&)>& change) {
  if (p.total_q == 0) return;
  OutView view = output(p);
  change(view);
  write(p.out, view.out);
  write(p.lse, view.lse);
}

}  // namespace attnbench
