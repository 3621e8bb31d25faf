// The faults that the checks must see: each a wrong kernel that someone met, as a decorator round a correct
// one.
#pragma once

#include <string>
#include <vector>

#include "harness/selftest/host_attention.h"
#include "harness/selftest/tamper.h"

namespace attnbench {

struct Fault {
  std::string name;
  std::string what;                ///< what the wrong kernel does, in a few words
  std::vector<std::string> cases;  ///< YAML mappings; the first that the kernel takes is used
  Tamper::Fault launch;
  int repeats = 2;  ///< launches of the invariant "repeat"
  uint32_t breaks =
      0;  ///< the KernelFlag that it breaks: no fault in a kernel that does not promise as much; 0: none
  uint64_t shows_with = 0;  ///< Feature bits of the launches that tell it: a kernel without one never differs
};

struct FaultClass {
  std::string name;
  std::vector<Fault> faults;
};

/// All classes, in the order of the matrix.
std::vector<FaultClass> all_faults();

FaultClass mask_faults();
FaultClass length_faults();
FaultClass empty_row_faults();
FaultClass paging_faults();
FaultClass nan_faults();
FaultClass head_faults();
FaultClass split_faults();
FaultClass score_faults();
FaultClass quantised_faults();
FaultClass append_faults();
FaultClass rotary_faults();
FaultClass quantised_append_faults();
FaultClass in_call_faults();
FaultClass position_faults();
FaultClass input_faults();
FaultClass width_faults();
FaultClass training_faults();
FaultClass num_splits_faults();
FaultClass merge_faults();
FaultClass memory_faults();
FaultClass state_faults();
FaultClass layout_faults();
FaultClass stride_faults();
FaultClass ignored_faults();

// How faults are written.

/// A launch of attention with changed parameters.
Tamper::Fault with_params(std::function<void(Tamper&, AttentionParams&)> change);
/// A launch of kv_append with changed parameters.
Tamper::Fault with_append(std::function<void(Tamper&, KvAppendParams&)> change);
/// A launch of any operation with changed parameters.
Tamper::Fault with_op(std::function<void(Tamper&, OpParams&)> change);
/// The right launch, then its output changed.
Tamper::Fault with_output(std::function<void(const HostView&, OutView&)> change);
/// The right launch, then all rows computed again by a rule.
Tamper::Fault with_rule(HostRule rule);
/// The first n entries of the sequences' key lengths, to be changed and put in the place of seqused_k.
void change_lengths(Tamper& t, AttentionParams& p, const std::function<int32_t(int b, int32_t k_len)>& to);
/// Pages that hold the keys of sequence `b`.
int64_t pages_of(const HostView& v, int b);
/// The block table, to be changed and put in its place.
void change_table(Tamper& t, AttentionParams& p,
                  const std::function<void(const HostView&, std::vector<int32_t>&)>& to);

}  // namespace attnbench
