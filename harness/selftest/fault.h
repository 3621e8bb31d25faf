// The faults that the checks must catch. A fault is a deliberate mistake put around a right kernel. Each is
// modelled on a wrong kernel that somebody met.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "harness/selftest/host_view.h"
#include "harness/selftest/tamper.h"

namespace attnbench {

struct Fault {
  std::string name;
  std::string what;                ///< what the wrong kernel does, in a few words
  std::vector<std::string> cases;  ///< YAML mappings; the first that the kernel takes is used
  Tamper::Fault launch;
  /// Keys of the YAML format, or words of them, that the wrong kernel ignores or gets wrong: "alibi_sqrt",
  /// "kv: paged". A case sets each of them. Every key and word needs such a fault (selftest_switch_test.cpp).
  std::vector<std::string> ignores = {};
  /// Words of a clue that names this mistake. Empty: the text of the mistake of this name (mistakes.h).
  std::string clue = {};
  int repeats = 2;  ///< launches of the invariant "repeat"
  /// The KernelFlag that it breaks, or 0. It is no fault in a kernel that does not set this flag.
  uint32_t breaks = 0;
  /// Feature bits of the launches that show it. It makes no difference in a kernel that lacks one of them.
  uint64_t shows_with = 0;
  bool supports_all = false;  ///< the wrong kernel's `supports` accepts everything

  /// Whether `ignores` names a type.
  bool about_types() const {
    return std::ranges::any_of(ignores, [](const std::string& key) { return key.starts_with("dtype"); });
  }
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
FaultClass query_faults();
FaultClass cached_rotary_faults();
FaultClass quantised_append_faults();
FaultClass scale_faults();
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
FaultClass backward_faults();
FaultClass lse_faults();
FaultClass refusal_faults();
FaultClass custom_mask_faults();
FaultClass key_list_faults();
FaultClass move_faults();
FaultClass block_scale_faults();

/// The case that one of Fault::cases is.
Case fault_case(const std::string& yaml, uint64_t seed);
/// A case of a fault in a type that `kernel` takes: cases are written in bf16, which few of them are about.
std::string in_type_of(const Kernel& kernel, const std::string& yaml);

// Building blocks of faults.

/// The groups in one list, in their order.
std::vector<Fault> joined(std::initializer_list<std::vector<Fault>> groups);

/// A launch in which `change(t, p)` has changed the parameters of its op.
template <auto of, class Change>
Tamper::Fault changed(Change change) {
  return [change = std::move(change)](Tamper& t, const OpParams& op) {
    OpParams wrong = op;
    change(t, wrong.*of);
    return t.launch(wrong);
  };
}
/// The right launch; then `change(t, p)` changes memory.
template <auto of, class Change>
Tamper::Fault afterwards(Change change) {
  return [change = std::move(change)](Tamper& t, const OpParams& op) {
    const KernelStatus s = t.launch(op);
    if (s == KernelStatus::kOk) change(t, op.*of);
    return s;
  };
}

/// A launch of attention with changed parameters.
Tamper::Fault with_params(std::function<void(Tamper&, AttentionParams&)> change);
/// A launch of kv_append with changed parameters.
Tamper::Fault with_append(std::function<void(Tamper&, KvAppendParams&)> change);
/// A launch of any operation with changed parameters.
Tamper::Fault with_op(std::function<void(Tamper&, OpParams&)> change);
/// The right launch; then its output is changed.
Tamper::Fault with_output(std::function<void(const HostView&, OutView&)> change);
/// The right launch; then O of these rows is what it was before.
Tamper::Fault unwritten(std::function<bool(const HostView&, const HostRow&)> of);
/// The right launch; then each row has the reference's answer to a problem that `problem` makes of the right one, as
/// `row` changes it.
Tamper::Fault with_answers(std::function<void(const HostView&, reference::Problem&)> problem,
                           std::function<void(const HostView&, const HostRow&, RowAnswer&)> row = {});
/// The problem of the launch itself, for with_answers.
inline void right_problem(const HostView&, reference::Problem&) {}
/// A fault that is a known mistake (mistakes.h). Launches that cannot show it stay right.
Fault known(const std::string& name, std::string what, std::vector<std::string> cases,
            std::vector<std::string> ignores = {});
/// Makes a problem of the right one in which rows see other keys: `move` changes lo and hi of the rows.
std::function<void(const HostView&, reference::Problem&)> keys_moved(
    std::function<void(const HostView&, HostRow&)> move);
/// Writes O and LSE of a row, or of all.
void set_row(OutView& out, const HostRow& row, const RowAnswer& answer);
void set_rows(OutView& out, const HostView& view, const std::vector<RowAnswer>& all);
/// Adds a term exp(logit) to the denominator of a row.
void add_term(RowAnswer& row, double logit);
/// Merges states of a row with weights from `logs`, which take the place of their LSEs.
RowAnswer merged(const std::vector<RowAnswer>& parts, const std::vector<double>& logs);
/// Gives `p` changed key lengths: seqused_k[b] becomes to(b, length).
void change_lengths(Tamper& t, AttentionParams& p, const std::function<int32_t(int b, int32_t k_len)>& to);
/// Number of pages that hold the keys of sequence `b`.
int64_t pages_of(const HostView& v, int b);
/// Gives `p` a copy of its block table that `to` has changed. Does nothing without pages.
void change_table(Tamper& t, AttentionParams& p,
                  const std::function<void(const HostView&, std::vector<int32_t>&)>& to);

}  // namespace attnbench
