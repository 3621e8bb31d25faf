// Judges the outputs of a launch.
#pragma once

#include <memory>

#include "harness/facts/verdict.h"
#include "harness/tensors/workload.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// Compares the outputs of one launch with the reference (attention, attention_backward, merge_states) or with the expected
/// caches (kv_append, ops/kv_append/judge_cache.h; kv_move). The mode must not be kOff. num_threads 0: all. Attention whose
/// `outputs.no_lse` is set is judged by O alone.
Verdict verify(const Workload& workload, const HostOutputs& outputs, const Numerics& numerics,
               const Check& check, int num_threads = 0);

/// The reference's rows of an attention case, kept in memory to judge several launches of it.
class StoredReference {
 public:
  StoredReference(const Case& c, CheckMode mode, int num_threads = 0);
  ~StoredReference();
  Verdict judge(const HostOutputs& outputs, const Numerics& numerics) const;

 private:
  struct Rows;
  std::unique_ptr<Rows> rows_;
};

/// The same for a case of attention_backward, for one declared arithmetic.
class StoredGradients {
 public:
  StoredGradients(const Case& c, const Numerics& numerics, CheckMode mode, int num_threads = 0);
  ~StoredGradients();
  Verdict judge(const HostOutputs& outputs) const;

 private:
  struct Rows;
  std::unique_ptr<Rows> rows_;
};

/// The parts of verify(), for tests.
Verdict verify_attention(const Case& c, const HostOutputs& outputs, const Numerics& numerics,
                         const Check& check, int num_threads);
Verdict verify_backward(const Case& c, const HostOutputs& outputs, const Numerics& numerics,
                        const Check& check, int num_threads);
/// Calls the function of the case's op: attention or attention_backward.
Verdict verify_launch(const Case& c, const HostOutputs& outputs, const Numerics& numerics, const Check& check,
                      int num_threads);
Verdict verify_append(const Workload& workload, const HostOutputs& outputs);
Verdict verify_move(const Workload& workload, const HostOutputs& outputs);
Verdict verify_merge(const Case& c, const HostOutputs& outputs, const Numerics& numerics, const Check& check);

}  // namespace attnbench
