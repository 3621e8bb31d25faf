// Wrong gradients: P is the reference's answer to a problem, and the sums over pairs follow a rule. Small cases only.
#pragma once

#include <functional>
#include <vector>

#include "harness/judge/answers.h"
#include "harness/selftest/tamper.h"

namespace attnbench {

/// A query row and a key of one sequence, and what their gradients are made of.
struct GradPair {
  int i = 0, j = 0, head = 0;
  int q_len = 0, k_len = 0;
  int group = 1;  ///< query heads per KV head
  double lse = 0, delta = 0;
  double p = 0;
  double keep = 1;   ///< what dropout multiplies by
  double dp = 0;     ///< dO.v
  double slope = 1;  ///< derivative of the softcap
  int64_t diag() const { return int64_t{i} + k_len - q_len; }
};

/// One of the three sums that a pair belongs to.
enum class Grad { kDq, kDk, kDv };

/// Which parts of the arithmetic are wrong; empty members leave their part right.
struct BackwardRule {
  std::function<void(reference::Problem&)> problem;  ///< makes the problem that P answers
  /// dS of a pair in dq and in dk, and the weight of dO in dv.
  std::function<double(const GradPair&, Grad)> term;
  std::function<int(const AttentionBackwardParams&, int head)> kv_head;  ///< that a head's dk and dv go to
  double dq_factor = 1, dk_factor = 1;
  bool round_sums = false;  ///< running sums of dq are rounded to the type
  std::function<double(int head, double dsink)> dsink;
  std::function<bool(int seq)> in_dsinks;
};

/// dS of a pair; `delta` in place of its own.
double ds_of(const GradPair& pair, double delta);
/// The right term of a pair.
double right_term(const GradPair& pair, Grad of);

/// The gradients of a launch in memory, which faults change.
struct GradView {
  const AttentionBackwardParams* p;
  std::vector<unsigned char> dq, dk, dv;
  std::vector<float> dsinks;
  std::vector<int32_t> cu_q, cu_k;

  void set_dq(int64_t token, int head, int channel, double x);
  void set_dk(int64_t token, int head, int channel, double x);
  void set_dv(int64_t token, int head, int channel, double x);
};

/// The right launch; then its gradients are changed.
Tamper::Fault with_gradients(const std::function<void(GradView&)>& change);
/// The right launch; then all gradients are computed again on the host by a rule.
Tamper::Fault with_backward_rule(const BackwardRule& rule);
/// A launch of attention_backward with changed parameters.
Tamper::Fault with_backward(const std::function<void(Tamper&, AttentionBackwardParams&)>& change);

}  // namespace attnbench
