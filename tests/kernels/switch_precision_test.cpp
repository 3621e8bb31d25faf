// Each feature has a switch. A kernel that ignores it must fail, and the same case must pass with it.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "harness/session/session.h"
#include "kernels/registry.h"

namespace attnbench {
namespace {

struct Switch {
  const char* name;
  std::function<void(CaseParams&)> set;   ///< switches the feature on
  std::function<void(OpParams&)> ignore;  ///< the parameters that a kernel without the feature would see
  bool o = true;                          ///< whether O must then be wrong
  bool lse = false;                       ///< whether LSE must then be wrong
  bool probs = false;                     ///< whether probabilities must then be wrong
};

void PrintTo(const Switch& s, std::ostream* out) { *out << s.name; }

const Kernel& good() {
  for (const Kernel* k : builtin_kernels()) {
    if (k->op == Op::kAttention && k->device == DeviceKind::kCpu) return *k;
  }
  std::abort();
}

/// A global, because a kernel's functions have no state of their own.
std::function<void(OpParams&)> ignored;

Record run(const CaseParams& params, const std::function<void(OpParams&)>& ignore) {
  ignored = ignore;
  Kernel k = good();
  k.name = "switched";
  k.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    OpParams seen = *p;
    if (ignored) ignored(seen);
    return good().launch(&seen, c, m);
  };
  Case item;
  item.params = normalised(params);
  item.seed = 5;
  item.id = case_id(item.params);
  const auto device = open_device("cpu", 1);
  SessionOptions options;
  options.time = false;
  bool lost = false;
  return run_item({&item, &k}, *device, options, lost);
}

class Switches : public ::testing::TestWithParam<Switch> {};

TEST_P(Switches, OffFailsOnPasses) {
  for (const KvSource kv : {KvSource::kPacked, KvSource::kPaged, KvSource::kContiguous}) {
    for (const DType dtype : {DType::kBf16, DType::kFp32}) {
      CaseParams params;
      params.kv = kv;
      params.dtype = dtype;
      params.num_heads_q = 4;
      params.num_heads_kv = 2;
      params.head_dim = 32;
      params.causal = true;
      params.seqs = {{20, 50}, {1, 90}, {0, 3}, {3, 3}};
      GetParam().set(params);
      SCOPED_TRACE(case_id(params));
      const Record on = run(params, nullptr);
      EXPECT_EQ(on.status, Status::kPass) << on.reason;
      const Record off = run(params, GetParam().ignore);
      ASSERT_EQ(off.status, Status::kFail) << "ignoring it was not seen";
      const Verdict& v = *off.check;
      EXPECT_EQ(!(v.max_z <= 6), GetParam().o) << off.reason;
      EXPECT_EQ(!(v.lse_max_z <= 6), GetParam().lse) << off.reason;
      EXPECT_EQ(!(v.probs_max_z <= 6), GetParam().probs) << off.reason;
    }
  }
}

/// q and K, or K alone, in int8.
void int8(CaseParams& p) {
  p.q_dtype = DType::kInt8;
  p.kv_dtype = KvDType::kInt8;
}
void int8_k(CaseParams& p) { p.kv_dtype = KvDType::kInt8K; }

void training(CaseParams& p) {
  p.probs = true;
  p.dropout = 0.25;
}

const Switch kSwitches[] = {
    // The kernel takes rows of V and O to be as wide as those of K. Some channels of O stay unwritten or
    // overwrite others.
    {"wider_values", [](CaseParams& p) { p.head_dim_v = 40; },
     [](OpParams& p) { p.attention.head_dim_v = p.attention.head_dim; }},
    {"narrower_values", [](CaseParams& p) { p.head_dim_v = 24; },
     [](OpParams& p) { p.attention.head_dim_v = p.attention.head_dim; }},
    // The kernel reads the channels after those of the view.
    {"v_is_k_view",
     [](CaseParams& p) {
       p.v_is_k_view = true;
       p.head_dim_v = 24;
     },
     [](OpParams& p) {
       p.attention.v = static_cast<const char*>(p.attention.v) + 8 * dtype_size(p.attention.dtype_v);
       p.attention.features &= ~uint64_t{kVIsK};
     }},
    // The descale of the first token, or of the first head, is used for all.
    {"int8_q_by_token", int8, [](OpParams& p) { p.attention.q_descale_stride_outer = 0; }, true, true},
    {"int8_q_by_head", int8, [](OpParams& p) { p.attention.q_descale_stride_head = 0; }, true, true},
    {"int8_k_by_head", int8, [](OpParams& p) { p.attention.k_descale_stride_head = 0; }, true, true},
    {"int8_k_alone", int8_k, [](OpParams& p) { p.attention.k_descale_stride_head = 0; }, true, true},
    {"int8_v_by_head", int8, [](OpParams& p) { p.attention.v_descale_stride_head = 0; }},
    {"int8_v_by_channel", int8, [](OpParams& p) { p.attention.v_descale += 1; }},
    // One descale per sequence and KV head is used instead of one per row.
    {"int8_k_by_token", int8,
     [](OpParams& p) {
       static const std::vector<float> ones(4096, 1.0f / 40);
       p.attention.k_descale = ones.data();
       p.attention.k_descale_stride_block = p.attention.k_descale_stride_outer = 0;
     },
     true, true},
    {"e4m3_q_by_sequence",
     [](CaseParams& p) {
       p.q_dtype = DType::kE4m3;
       p.kv_dtype = KvDType::kE4m3;
     },
     [](OpParams& p) { p.attention.q_descale_stride_outer = 0; }, true, true},
    {"e4m3_q_by_head",
     [](CaseParams& p) {
       p.q_dtype = DType::kE4m3;
       p.kv_dtype = KvDType::kE4m3;
     },
     [](OpParams& p) { p.attention.q_descale_stride_head = 0; }, true, true},
    {"probs", training, [](OpParams& p) { p.attention.features &= ~uint64_t{kProbs}; }, false, false, true},
    // Dropout does not change LSE and probabilities.
    {"dropout", training,
     [](OpParams& p) {
       p.attention.features &= ~uint64_t{kDropout};
       p.attention.p_dropout = 0;
     }},
    {"dropout_seed", training, [](OpParams& p) { ++p.attention.dropout_seed; }},
    {"dropout_offset_low", training, [](OpParams& p) { ++p.attention.dropout_offset; }},
    {"dropout_offset_high", training, [](OpParams& p) { p.attention.dropout_offset &= 0xffffffff; }},
    {"dropout_share", training, [](OpParams& p) { p.attention.p_dropout = 0.26f; }},
};

INSTANTIATE_TEST_SUITE_P(, Switches, ::testing::ValuesIn(kSwitches),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace attnbench
