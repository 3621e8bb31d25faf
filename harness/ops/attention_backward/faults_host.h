// Wrong gradients: P is the reference's answer to a problem, and the sums over pairs follow a rule. Small cases only.
#pragma once

#include <functional>
#include <vector>

#include "harness/ops/attention_backward/judge_pairs.h"
#include "harness/selftest/fault.h"

namespace attnbench {

/// What faults change: the rule of the pairs, and dsinks.
struct BackwardRule : GradRule {
  std::function<double(int head, double dsink)> dsink;
  std::function<bool(int seq)> in_dsinks;
};

/// The gradients of a launch in memory, which faults change.
struct GradView {
  const AttentionBackwardParams* p;
  std::vector<unsigned char> dq, dk, dv;
  std::vector<float> dsinks;
  std::vector<int32_t> cu_q, cu_k;

  void set_dq(int64_t token, int head, int channel, double x);
  void set_dk(int64_t token, int head, int channel, double x);
  void set_dv(int64_t token, int head, int channel, double x);
  void set_row(Grad of, int64_t token, int head, const std::vector<double>& row);
};

/// The right launch; then its gradients are changed.
Tamper::Fault with_gradients(const std::function<void(GradView&)>& change);
/// The right launch; then all gradients are computed again on the host by a rule.
Tamper::Fault with_backward_rule(const BackwardRule& rule);
/// A fault that is a known mistake (judge_mistakes.h).
Fault known_gradient(const std::string& name, std::string what, std::vector<std::string> cases,
                     std::vector<std::string> ignores = {});
/// A launch of attention_backward with changed parameters.
Tamper::Fault with_backward(const std::function<void(Tamper&, AttentionBackwardParams&)>& change);

}  // namespace attnbench
