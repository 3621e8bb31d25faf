// The Hopper kernels called as by a user of a library: what `launch` refuses, parallel streams, simultaneous
// captures, descales of any sign. Needs a GPU on which they run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <latch>
#include <thread>

#include "harness/launch/launcher.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

Case one_case(const std::string& yaml) {
  std::vector<Case> cases = expand(parse_inline_case(yaml)).cases;
  EXPECT_EQ(cases.size(), 1u);
  return cases.at(0);
}

const Kernel& kernel_named(const std::string& name) {
  return *select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCuda, {name}).at(0);
}

/// A case on a device of its own, with its own stream and the workspace of one kernel.
struct Call {
  std::unique_ptr<Device> device = open_device("cuda");
  Workload workload;
  const Kernel& kernel;
  OpParams params;
  LaunchContext context;
  GuardedBuffer workspace;
  KernelMessage message{};

  Call(const std::string& name, const std::string& yaml)
      : workload(*device, one_case(yaml)),
        kernel(kernel_named(name)),
        params(workload.params()),
        context(device->launch_context()) {
    const std::size_t bytes = kernel.workspace_bytes(&params, &context);
    workspace = GuardedBuffer(*device, "workspace", static_cast<int64_t>(std::max<std::size_t>(bytes, 256)));
    device->set_bytes(workspace.data(), 0xff, workspace.bytes());
    device->synchronize();
    context.workspace = workspace.data();
    context.workspace_bytes = static_cast<std::size_t>(workspace.bytes());
  }
  KernelStatus plan() {
    return kernel.plan == nullptr ? KernelStatus::kOk : kernel.plan(&params, &context, &message);
  }
  KernelStatus launch() { return kernel.launch(&params, &context, &message); }

  std::vector<float> outputs() {
    device->synchronize();
    const HostOutputs h = workload.download_outputs();
    std::vector<float> out(h.out.size() / 2);
    for (std::size_t i = 0; i < out.size(); ++i) {  // bf16
      uint16_t half;
      std::memcpy(&half, h.out.data() + 2 * i, 2);
      const uint32_t bits = uint32_t{half} << 16;
      std::memcpy(&out[i], &bits, 4);
    }
    return out;
  }
};

/// Decodes that share enough keys for a cascade.
constexpr const char* kSharedKeys =
    "{kv: paged, heads: 32/8, page_layout: shared_prefix, shared_prefix: 1k, batch: 40q1s1280_9q2s2k}";

class HopperCall : public testing::Test {
 protected:
  void SetUp() override {
    if (probe_devices().cuda_devices == 0) GTEST_SKIP() << probe_devices().cuda_reason;
    if (open_device("cuda")->info().compute_capability != 90) GTEST_SKIP() << "no Hopper GPU";
  }
};

/// A cache that only sm90_mla takes.
const std::string kLatent = "head_dim: 576, head_dim_v: 512, v_is_k_view: true, kv: paged";

TEST_F(HopperCall, LaunchRefusesAPointerThatIsNotAligned) {
  for (const std::string name : {"sm90_prefill", "sm90_decode", "sm90_mixed", "sm90_mla"}) {
    const bool mla = name == "sm90_mla";
    for (const char* field : {"q", "k", "v", "out"}) {
      if (mla && field == std::string("v")) continue;  // a view of k
      Call call(name, mla ? "{" + kLatent + ", batch: 2q4s300, heads: 32/1, mask: causal}"
                          : "{kv: paged, batch: 2q4s300, heads: 32/8, mask: causal}");
      ASSERT_EQ(call.plan(), KernelStatus::kOk) << call.message.text;
      AttentionParams& a = call.params.attention;
      const auto shift = [](auto& pointer) {
        auto* bytes = const_cast<char*>(static_cast<const char*>(static_cast<const void*>(pointer)));
        pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(static_cast<void*>(bytes + 2));
      };
      if (field == std::string("q")) shift(a.q);
      if (field == std::string("k")) shift(a.k);
      if (mla) a.v = a.k;
      if (field == std::string("v")) shift(a.v);
      if (field == std::string("out")) shift(a.out);
      EXPECT_EQ(call.launch(), KernelStatus::kBadArgument) << name << " " << field;
      EXPECT_NE(std::string(call.message.text).find(std::string(field) + " aligned to 16 bytes required"),
                std::string::npos)
          << call.message.text;
      EXPECT_NO_THROW(call.device->synchronize());
    }
  }
}

TEST_F(HopperCall, LaunchRefusesAWorkspaceWithoutItsPlan) {
  for (const std::string kernel :
       {"sm90_decode", "sm90_decode_fixed", "sm90_mixed", "sm90_mixed, shared", "sm90_mla", "sm90_prefill"}) {
    const std::string name = kernel.substr(0, kernel.find(','));
    const std::string long_keys = "{kv: paged, batch: 4q1s9k, heads: 24/8}";
    const std::string few_keys = "{kv: paged, batch: 4q64s256, heads: 24/8}";  // sm90_prefill needs no list
    Call call(name, name == "sm90_mla"       ? "{" + kLatent + ", batch: 4q1s9k, heads: 24/1}"
                    : name == "sm90_prefill" ? few_keys
                    : name != kernel         ? kSharedKeys
                                             : long_keys);
    const auto refused = [&](const char* given) {
      EXPECT_EQ(call.launch(), KernelStatus::kBadArgument) << name;
      EXPECT_NE(std::string(call.message.text).find(given), std::string::npos) << call.message.text;
    };
    refused("given ");  // no workspace, or one of unknown memory
    ASSERT_EQ(call.plan(), KernelStatus::kOk) << call.message.text;
    EXPECT_EQ(call.launch(), KernelStatus::kOk) << call.message.text;
    // Another layout: of the places for states or of those for results.
    const OpParams planned = call.params;
    AttentionParams& a = call.params.attention;
    if (name == "sm90_mla") {
      a.max_seqlen_k /= 64;
    } else {
      (name == "sm90_decode_fixed" ? a.max_seqlen_k : a.max_seqlen_q) *= 3;
    }
    const std::size_t planned_bytes = call.context.workspace_bytes;
    call.context.workspace_bytes = call.kernel.workspace_bytes(&call.params, &call.context);
    // More rows are not for the guests, but for sm90_prefill, which has no plan here.
    if (name != kernel) refused("given none");
    if (name == kernel && name != "sm90_prefill")
      refused("one for other maxima or heads");  // its plan serves all
    call.params = planned;
    call.context.workspace_bytes = planned_bytes;
    const auto other = open_device("cuda");
    void* own = call.context.stream;
    call.context.stream = other->launch_context().stream;
    refused("one on another stream");
    call.context.stream = own;
    EXPECT_EQ(call.launch(), KernelStatus::kOk) << call.message.text;
    EXPECT_NO_THROW(call.device->synchronize());
  }
}

TEST_F(HopperCall, ARefusedLaunchNeedsNoWorkspace) {
  for (const char* name : {"sm90_decode", "sm90_mixed", "sm90_prefill"}) {
    Call call(name, "{kv: paged, batch: 4q1s256, heads: 8/2}");
    call.params.attention.head_dim = call.params.attention.head_dim_v = 80;
    ASSERT_NE(call.kernel.supports(&call.params, &call.context, &call.message), KernelStatus::kOk) << name;
    EXPECT_EQ(call.kernel.workspace_bytes(&call.params, &call.context), 0u) << name;
  }
}

/// Blocks of a launch that waits begin late and out of step, because a long kernel and other launches of the
/// same kind hold the multiprocessors.
TEST_F(HopperCall, LaunchesThatWaitEndBesideOthers) {
  Call busy("cuda_simt", "{kv: packed, batch: 4q2k, heads: 32/8, mask: causal}");
  std::vector<std::unique_ptr<Call>> calls;
  for (const char* batch : {"4q1s9k", "5q1s7k_q1s333", "q1s64k", "24q1s1k"}) {
    calls.push_back(
        std::make_unique<Call>("sm90_decode", std::string("{kv: paged, heads: 32/8, batch: ") + batch + "}"));
    ASSERT_EQ(calls.back()->plan(), KernelStatus::kOk) << calls.back()->message.text;
  }
  for (const char* rest :
       {"32/8, batch: q16s9k", "32/8, batch: 5q8s7k_q3s333", "8/1, batch: q2s64k"}) {  // rows are shared
    calls.push_back(std::make_unique<Call>("sm90_decode", std::string("{kv: paged, heads: ") + rest + "}"));
    ASSERT_EQ(calls.back()->plan(), KernelStatus::kOk) << calls.back()->message.text;
  }
  for (const char* rest : {"16/1, batch: 5q1s7k_q1s333", "128/1, batch: q1s9k"}) {
    calls.push_back(std::make_unique<Call>("sm90_mla", "{" + kLatent + ", heads: " + rest + "}"));
    ASSERT_EQ(calls.back()->plan(), KernelStatus::kOk) << calls.back()->message.text;
  }
  calls.push_back(std::make_unique<Call>("sm90_mixed", kSharedKeys));
  ASSERT_EQ(calls.back()->plan(), KernelStatus::kOk) << calls.back()->message.text;
  std::vector<std::vector<float>> alone;
  for (auto& c : calls) {
    ASSERT_EQ(c->launch(), KernelStatus::kOk) << c->message.text;
    alone.push_back(c->outputs());
    c->workload.reset_outputs();
    c->device->synchronize();
  }
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(busy.launch(), KernelStatus::kOk) << busy.message.text;
    for (int repeat = 0; repeat < 40; ++repeat) {
      for (auto& c : calls) ASSERT_EQ(c->launch(), KernelStatus::kOk) << c->message.text;
    }
    for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i]->outputs(), alone[i]) << i;
  }
  busy.device->synchronize();
}

/// A step on two streams (head_dim 64), captured by two threads at once.
TEST_F(HopperCall, TwoCapturesAtOnce) {
  constexpr const char* kStep = "{kv: paged, heads: 32/8, head_dim: 64, mask: causal, batch: q2ks8k_63q1s4k}";
  std::unique_ptr<Call> calls[2];
  std::vector<float> expected[2];
  std::function<void()> replays[2];
  for (int i = 0; i < 2; ++i) {
    calls[i] = std::make_unique<Call>("sm90_mixed", kStep);
    ASSERT_EQ(calls[i]->plan(), KernelStatus::kOk) << calls[i]->message.text;
    ASSERT_EQ(calls[i]->launch(), KernelStatus::kOk) << calls[i]->message.text;
    expected[i] = calls[i]->outputs();
    calls[i]->workload.reset_outputs();
    calls[i]->device->synchronize();
  }
  std::latch captured(2);
  const auto capture = [&](int i) {
    replays[i] = calls[i]->device->capture_graph([&, i] {
      EXPECT_EQ(calls[i]->launch(), KernelStatus::kOk) << calls[i]->message.text;
      captured.arrive_and_wait();  // now both captures hold their side stream
    });
  };
  std::thread other(capture, 1);
  capture(0);
  other.join();
  for (int round = 0; round < 3; ++round) {
    for (auto& replay : replays) replay();
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(calls[i]->outputs(), expected[i]);
}

/// Descales below 0, equal to 0, and NaN where no key uses it: sm90_decode compared with cuda_simt.
TEST_F(HopperCall, DescalesOfAnySign) {
  for (const char* more : {"", ", softcap: 20", ", head_dim: 256", ", heads: 32/1"}) {
    const std::string yaml =
        std::string(
            "{kv: paged, kv_dtype: e4m3, mask: causal, allow_short_kv: true, batch: q1s700_q1s0_q2s90") +
        (std::strstr(more, "heads") ? "" : ", heads: 8/4") + more + "}";
    std::vector<float> out[2];
    for (int i = 0; i < 2; ++i) {
      Call call(i == 0 ? "sm90_decode" : "cuda_simt", yaml);
      const AttentionParams& a = call.params.attention;
      const int64_t heads = a.num_heads_kv;
      std::vector<float> k(3 * heads);
      call.device->download(k.data(), a.k_descale, static_cast<int64_t>(k.size() * sizeof(float)));
      for (int64_t h = 0; h < heads; ++h) {
        if (h % 3 != 1) k[h] = -k[h];
        k[heads + h] = NAN;
        if (h % 2 == 0) k[2 * heads + h] = 0.0f;
      }
      call.device->upload(const_cast<float*>(a.k_descale), k.data(),
                          static_cast<int64_t>(k.size() * sizeof(float)));
      ASSERT_EQ(call.plan(), KernelStatus::kOk) << call.message.text;
      ASSERT_EQ(call.launch(), KernelStatus::kOk) << call.message.text;
      out[i] = call.outputs();
    }
    ASSERT_EQ(out[0].size(), out[1].size());
    float worst = 0.0f;
    for (std::size_t i = 0; i < out[0].size(); ++i) {
      ASSERT_TRUE(std::isfinite(out[0][i])) << yaml << " element " << i;
      worst = std::max(worst, std::abs(out[0][i] - out[1][i]) / std::max(1.0f, std::abs(out[1][i])));
    }
    EXPECT_LT(worst, 0.02f) << yaml;
  }
}

}  // namespace
}  // namespace attnbench
