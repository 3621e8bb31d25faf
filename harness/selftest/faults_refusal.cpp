// Faults of kernels that take launches which they must refuse.
#include "harness/config/case_params.h"
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define REFUSED_SHAPE "dtype: bf16, heads: 4/2, head_dim: 64, mask: causal"
constexpr const char* kBadPaged =
    "{kv: paged, block_size: 16, " REFUSED_SHAPE ", bad_launch: %, batch: q3s40_q1s50}";
constexpr const char* kBadPacked = "{kv: packed, " REFUSED_SHAPE ", bad_launch: %, batch: q3s40_q1s50}";
constexpr const char* kBadAppend =
    "{op: kv_append, dtype: bf16, heads: 2, head_dim: 64, bad_launch: %, batch: q5s21}";
constexpr const char* kBadMerge =
    "{op: merge_states, dtype: bf16, heads: 4, head_dim: 64, states: 3, bad_launch: %, batch: q7}";
constexpr const char* kBadBackward =
    "{op: attention_backward, dtype: bf16, heads: 4/2, head_dim: 64, bad_launch: %, batch: q7}";

std::string with_word(const char* yaml, const char* word) {
  std::string text = yaml;
  return text.replace(text.find('%'), 1, word);
}

/// A kernel that looks at nothing, neither in `supports` nor in `launch`.
Fault taken(BadLaunch how, const char* what, std::initializer_list<const char*> cases) {
  const char* word = bad_launch_name(how);
  Fault fault{"bad_" + std::string(word) + "_taken", what, {}, [](Tamper&, const OpParams&) {
                return KernelStatus::kOk;
              }};
  for (const char* yaml : cases) fault.cases.push_back(with_word(yaml, word));
  fault.ignores = {"bad_launch: " + std::string(word)};
  fault.supports_all = true;
  return fault;
}

}  // namespace

FaultClass refusal_faults() {
  const auto all = {kBadPacked, kBadPaged, kBadAppend, kBadMerge, kBadBackward};
  FaultClass group{
      "refusals",
      {taken(BadLaunch::kFeature, "a feature bit that the kernel does not know is ignored", all),
       taken(BadLaunch::kDType, "a type that no output may have is taken", all),
       taken(BadLaunch::kHeadDim, "rows without channels are taken", all),
       taken(BadLaunch::kHeads, "query heads that are no multiple of the KV heads are taken", all),
       taken(BadLaunch::kBlockSize, "blocks of no token are taken", {kBadPaged, kBadAppend}),
       taken(BadLaunch::kNumSplits, "splits are taken that no feature bit announces",
             {kBadPacked, kBadPaged}),
       taken(BadLaunch::kBlockTable, "rows of a block table that end before their sequence are taken",
             {kBadPaged}),
       taken(BadLaunch::kPointer, "a null pointer is taken", all)}};
  Fault silent{"refused_without_a_word",
               "the kernel refuses, and does not say why",
               {"{kv: packed, " REFUSED_SHAPE ", expect: refused, bad_launch: pointer, batch: q3s40_q1s50}",
                with_word(kBadPaged, "pointer")},
               [](Tamper&, const OpParams&) { return KernelStatus::kBadArgument; },
               {"expect: refused"}};
  group.faults.push_back(silent);
  return group;
}

}  // namespace attnbench
