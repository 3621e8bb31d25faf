// Files of --dump: of every op, the one wrong element of an output is the worst one, and it alone is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "harness/config/sweep_file.h"
#include "harness/interop/case_tensors.h"
#include "harness/interop/dump.h"
#include "harness/interop/npy.h"
#include "harness/judge/verify.h"
#include "harness/launch/launcher.h"
#include "kernels/registry.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

struct Dumped {
  const char* mapping;
  const char* output;
};

class Dump : public ::testing::TestWithParam<Dumped> {
 protected:
  template <class T>
  std::vector<T> read(const std::string& name, const std::vector<int64_t>& shape) {
    const HostTensor t = read_npy((folder_ / (name + ".npy")).string());
    EXPECT_EQ(t.shape, shape) << name;
    std::vector<T> values(t.bytes.size() / sizeof(T));
    std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
    return values;
  }
  bool has(const std::string& name) const { return std::filesystem::exists(folder_ / name); }

  const test::TempFolder temp_;
  const std::filesystem::path folder_ = temp_.path();
};

TEST_P(Dump, TheWrongElementIsTheWorst) {
  const Case item = expand(parse_inline_case(GetParam().mapping)).cases.at(0);
  const auto device = open_device("cpu");
  const Kernel& kernel = *select_kernels(builtin_kernels(), item.params.op, DeviceKind::kCpu, {}).at(0);
  Workload workload(*device, item, layout_for(kernel));
  Launcher launcher(kernel, builtin_kernels(), *device, workload);
  const Check check(CheckMode::kFull, 1);
  const std::string dir = folder_.string();
  dump_inputs(dir, workload, launcher.numerics(), check);
  const std::vector<OutputTensor> outputs = output_tensors(workload);
  const OutputTensor& wrong =
      *std::ranges::find(outputs, std::string(GetParam().output), &OutputTensor::name);
  const std::vector<double> before = read<double>("expected_" + wrong.name, wrong.shape);
  EXPECT_FALSE(has(wrong.name + ".npy"));
  EXPECT_TRUE(has("case.txt") && has(kDumpScript));

  launcher.launch();
  // The last element that is compared and is no poison.
  auto at = static_cast<std::size_t>(element_count(wrong.shape));
  while (!std::isfinite(before[--at])) {
  }
  const auto i = static_cast<int64_t>(at);
  store_float(wrong.type, wrong.data, i, load_float(wrong.type, wrong.data, i) + 3);
  const HostOutputs got = launcher.outputs(workload);
  EXPECT_FALSE(verify(workload, got, launcher.numerics(), check).pass);
  dump_outputs(dir, workload, got, launcher.numerics(), check);
  for (const OutputTensor& o : outputs) {
    const std::vector<float> z = read<float>("z_" + o.name, o.shape);
    const std::vector<double> expected = read<double>("expected_" + o.name, o.shape);
    int64_t over = 0, compared = 0;
    for (const float x : z) {
      over += x > 6;
      compared += !std::isnan(x);
    }
    EXPECT_EQ(over, &o == &wrong) << o.name;
    EXPECT_GT(compared, 0) << o.name;
    if (&o != &wrong) continue;
    EXPECT_GT(z[at], 6);
    EXPECT_NEAR(expected[at], before[at], 1e-6);
    if (o.type == DType::kInt8) continue;  // is written as it is
    const std::vector<float> values = read<float>(o.name, o.shape);
    EXPECT_EQ(values[at], load_float(o.type, o.data, i));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ops, Dump,
    ::testing::Values(
        Dumped{"{batch: q3s20_q1s9, heads: 4/2, head_dim: 16, mask: causal, sinks: true}", "out"},
        Dumped{"{batch: q3s20_q0s4_q1s9, heads: 4/2, head_dim: 16, lse_log: base2}", "lse"},
        Dumped{"{batch: 4q1s90, kv: paged, heads: 4/2, head_dim: 16, path: split_decode, dtype: fp16}",
               "out"},
        Dumped{"{batch: q3s20_q1s9, kv: paged, heads: 4/2, head_dim: 32, mask: causal, append: in_call}",
               "v_cache"},
        Dumped{"{op: attention_backward, batch: q3s20_q9, heads: 4/2, head_dim: 16, mask: causal}", "dk"},
        Dumped{"{op: kv_append, batch: q3s20_q1s9, heads: 2, head_dim: 32, block_size: 8, kv_layout: hnd}",
               "v_cache"},
        Dumped{
            "{op: kv_append, batch: q3s20_q1s9, heads: 2, head_dim: 32, kv_dtype: int8, scales: per_token}",
            "k_scales"},
        Dumped{"{op: kv_append, batch: q3s20_q1s9, heads: 4/2, head_dim: 32, rotary: neox, query_out: same}",
               "query_out"},
        Dumped{"{op: kv_move, move: gather, batch: q3s20_q1s9, heads: 2, head_dim: 32, kv_dtype: e4m3}",
               "k_dst"},
        Dumped{"{op: kv_move, batch: q3s20_q1s9, heads: 2, head_dim: 32, block_size: 8}", "v_dst"},
        Dumped{"{op: merge_states, batch: q20, heads: 4, head_dim: 32, states: 3, lse_layout: token_major}",
               "out"},
        Dumped{
            "{op: merge_states, batch: q20, heads: 4, head_dim: 32, states: 3, states_per_row: varied, lse_log: base2}",
            "lse"}));

}  // namespace
}  // namespace attnbench
