// Judging what a launch left behind.
#pragma once

#include <memory>

#include "harness/verify/verdict.h"
#include "harness/workload/workload.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// Compares the outputs of one launch with the reference (attention, merge_states) or bit for bit with the
/// expected caches (kv_append). `mode` must not be kOff. threads 0: all.
Verdict verify(const Workload& workload, const HostOutputs& outputs, const Numerics& numerics, CheckMode mode,
               int num_threads = 0);

/// The reference's rows of a case, kept to judge several launches of it: memory for all of them.
class StoredReference {
 public:
  StoredReference(const Case& c, CheckMode mode, int num_threads = 0);
  ~StoredReference();
  Verdict judge(const HostOutputs& outputs, const Numerics& numerics) const;

 private:
  struct Rows;
  std::unique_ptr<Rows> rows_;
};

/// Its parts, for tests.
Verdict verify_attention(const Case& c, const HostOutputs& outputs, const Numerics& numerics, CheckMode mode,
                         int num_threads);
Verdict verify_append(const Workload& workload, const HostOutputs& outputs);
Verdict verify_merge(const Case& c, const HostOutputs& outputs, const Numerics& numerics, CheckMode mode);

}  // namespace attnbench
