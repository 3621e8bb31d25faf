// What a workload and a launch ask of an op: ops/<op>/tensors.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/tensors/workload.h"

namespace attnbench {

/// A piece of memory that a launch writes, as numbers of one type.
struct Written {
  void* at;
  int64_t elements;
  DType type;
  bool judged_by_thumb = true;  ///< the selftest applies rules of thumb to it

  int64_t bytes() const { return elements * static_cast<int64_t>(dtype_size(type)); }
};

struct TensorsOps {
  /// The launch parameters that need no memory.
  OpParams (*shape)(const Case&, bool padded);
  /// Decides which logical row each physical row holds.
  void (*plan)(const Case&, const LayoutVariant&, WorkloadPlan&);
  /// Adds the tensors of a launch.
  void (*add)(Workload&);
  /// Computes inputs that follow from others; null: there are none.
  void (*compute_inputs)(Workload&);
  /// Sets the pointers and what follows from the plan.
  void (*point)(const Workload&, OpParams&);
  HostOutputs (*download)(const Workload&);
  /// Makes a launch contradict the contract in one thing, which the case must have. kPointer changes nothing in
  /// parameters that have no pointers yet, nor does kBlockTable before the table is there.
  void (*spoil)(BadLaunch, OpParams&);
  std::vector<Written> (*written)(const OpParams&);
};

/// For `spoil`: a bit that no version of the contract has.
inline constexpr uint64_t kNoFeature = 1ull << 63;

ATTNBENCH_OP_TABLE(TensorsOps, kTensorsOps, tensors_ops)

}  // namespace attnbench
