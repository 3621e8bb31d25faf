// Appending: the cpu kernel passes, and a kernel that ignores or bends one part of what it was asked fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "harness/session/session.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

const Kernel& cpu_kernel(Op op) {
  for (const Kernel* k : builtin_kernels()) {
    if (k->op == op && k->device == DeviceKind::kCpu) return *k;
  }
  throw std::logic_error("the cpu kernels are always built");
}

struct Fault {
  std::string name;
  std::string mapping;  ///< the case, as after --case
  std::function<void(OpParams&)> bend;
  std::string reason;  ///< part of the verdict's; empty: must pass
};

std::function<void(OpParams&)> bend_next;  ///< of the wrapper's next launches

Record run_bent(const std::string& mapping, std::function<void(OpParams&)> bend) {
  const std::vector<Case> cases = expand(parse_inline_case(mapping)).cases;
  if (cases.size() != 1) throw std::logic_error("one case wanted: " + mapping);
  const Op op = cases[0].params.op;
  Kernel kernel = cpu_kernel(op);
  bend_next = std::move(bend);
  kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    OpParams bent = *p;
    bend_next(bent);
    return cpu_kernel(p->op).launch(&bent, c, m);
  };
  const auto device = open_device("cpu", 2);
  SessionOptions options;
  options.time = false;
  bool lost = false;
  return run_item({&cases[0], &kernel}, *device, options, lost);
}

class Append : public ::testing::TestWithParam<Fault> {};

TEST_P(Append, IsJudgedRight) {
  const Fault& fault = GetParam();
  const Record right = run_bent(fault.mapping, [](OpParams&) {});
  EXPECT_EQ(right.status, Status::kPass) << right.reason;
  const Record wrong = run_bent(fault.mapping, fault.bend);
  EXPECT_EQ(wrong.status, Status::kFail);
  EXPECT_THAT(wrong.reason, HasSubstr(fault.reason));
}

std::string kv_append(const std::string& keys) {
  return "{op: kv_append, heads: 2, head_dim: 32, batch: q3s40_q0s9_q20s33, padding_tokens: 2, " + keys + "}";
}

/// A cosine 2^-12 off: a bf16 row shows it in the elements that it pushes over a rounding boundary.
void bend_tables(RotaryParams& r) {
  static std::vector<float> cos;
  cos.assign(r.cos, r.cos + r.positions * (r.dim / 2));
  for (float& c : cos) c *= 1.0f + 0x1p-12f;
  r.cos = cos.data();
}

const std::vector<Fault> kKvAppendFaults = {
    {"RotaryIgnored", kv_append("rotary: neox"), [](OpParams& p) { p.kv_append.features &= ~kRotary; },
     "k_cache slot"},
    {"HalvesForPairs", kv_append("rotary: interleaved"),
     [](OpParams& p) { p.kv_append.rotary.interleaved = 0; }, "appended"},
    {"PairsForHalves", kv_append("rotary: neox, dtype: fp32"),
     [](OpParams& p) { p.kv_append.rotary.interleaved = 1; }, "appended"},
    {"PartialIgnored", kv_append("rotary: neox, rotary_dim: 16"),
     [](OpParams& p) {
       static std::vector<float> cos, sin;
       RotaryParams& r = p.kv_append.rotary;
       cos.assign(static_cast<std::size_t>(r.positions) * 16, 0.5f);
       sin = cos;
       r.cos = cos.data();
       r.sin = sin.data();
       r.dim = 32;
     },
     "appended"},
    {"PositionOffByOne", kv_append("rotary: neox"),
     [](OpParams& p) {
       static std::vector<int32_t> positions;
       positions.assign(p.kv_append.positions, p.kv_append.positions + p.kv_append.num_tokens);
       for (int32_t& n : positions) n = std::max(0, n - 1);
       p.kv_append.positions = positions.data();
     },
     "appended"},
    {"TablesSlightlyOff", kv_append("rotary: neox"), [](OpParams& p) { bend_tables(p.kv_append.rotary); },
     "appended"},
};
INSTANTIATE_TEST_SUITE_P(Kv, Append, ::testing::ValuesIn(kKvAppendFaults),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace attnbench
