// Cases that a kernel must refuse: expect: refused, and bad_launch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/launch/launcher.h"
#include "harness/session/session.h"
#include "kernels/registry.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

Case case_of(const std::string& yaml) { return expand(parse_inline_case(yaml)).cases.at(0); }

Record offer(const Kernel& k, const Case& c, bool time = false) {
  const auto device = open_device("cpu", 1);
  SessionOptions options;
  options.time = time;
  options.table = builtin_kernels();
  bool lost = false;
  return run_item({&c, &k}, *device, options, lost);
}

const Kernel& cpu_of(Op op) {
  return *select_kernels(builtin_kernels(), op, DeviceKind::kCpu, {"cpu"}).at(0);
}

/// A kernel that takes what `supports` and `launch` are given.
Kernel careless() {
  Kernel k = cpu_of(Op::kAttention);
  k.supports = [](const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; };
  k.launch = [](const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; };
  return k;
}

constexpr const char* kPaged = "kv: paged, heads: 4/2, head_dim: 64, mask: causal, batch: q3s40_q1s50";

TEST(Refusals, TheCpuKernelsRefuseEveryBadLaunch) {
  int seen = 0;
  for (std::size_t i = 1; i < std::size(kBadLaunchNames); ++i) {
    const auto how = static_cast<BadLaunch>(i);
    for (const std::string& rest :
         {std::string(kPaged), std::string("heads: 4/1, head_dim: 64, batch: q7"),
          std::string("op: kv_append, heads: 2, head_dim: 64, batch: q5s21"),
          std::string("op: merge_states, heads: 4, head_dim: 64, batch: q7"),
          std::string("op: attention_backward, heads: 4/2, head_dim: 64, batch: q7")}) {
      std::optional<Case> c;
      try {
        c = case_of("{" + rest + ", bad_launch: " + bad_launch_name(how) + "}");
      } catch (const ConfigError& e) {
        EXPECT_THAT(e.what(), HasSubstr("bad_launch"));
        continue;
      }
      ++seen;
      EXPECT_TRUE(c->params.expect_refused) << "implied";
      const Record r = offer(cpu_of(c->params.op), *c, true);
      EXPECT_EQ(r.status, Status::kPass) << c->id << ": " << r.reason;
      ASSERT_TRUE(r.check && r.check->refusal) << c->id;
      EXPECT_EQ(r.check->method, "refusal");
      EXPECT_THAT(r.check->refusal->message, HasSubstr("cpu: ")) << c->id;
      EXPECT_EQ(r.check->refusal->status, how == BadLaunch::kFeature ? "unsupported" : "bad_argument")
          << c->id;
      EXPECT_FALSE(r.time) << "there is nothing to time";
    }
  }
  EXPECT_EQ(seen, 8 + 6 + 6 + 5 + 5) << "the words that fit each case";
}

TEST(Refusals, PointersAndTablesAreRefusedByTheLaunch) {
  for (const char* word : {"pointer", "block_table"}) {
    const Record r =
        offer(cpu_of(Op::kAttention), case_of(fmt::format("{{{}, bad_launch: {}}}", kPaged, word)));
    ASSERT_TRUE(r.check && r.check->refusal) << r.reason;
    EXPECT_EQ(r.check->refusal->step, "launch");
  }
}

TEST(Refusals, AKernelThatTakesABadLaunchFails) {
  const Kernel k = careless();
  for (const char* word : {"pointer", "heads", "feature"}) {
    const Record r = offer(k, case_of(fmt::format("{{{}, bad_launch: {}}}", kPaged, word)));
    EXPECT_EQ(r.status, Status::kFail);
    EXPECT_THAT(r.reason, HasSubstr("takes a launch that it must refuse"));
    EXPECT_THAT(r.reason, HasSubstr(word));
    EXPECT_EQ(r.check->failed_by, std::vector<std::string>{detector::kNotRefused});
  }
}

TEST(Refusals, ASoundCaseThatTheKernelTakesFailsToo) {
  const Case c = case_of(fmt::format("{{{}, expect: refused}}", kPaged));
  const Record r = offer(cpu_of(Op::kAttention), c);
  EXPECT_EQ(r.status, Status::kFail);
  Kernel few = cpu_of(Op::kAttention);
  few.supports = [](const OpParams*, const LaunchContext*, KernelMessage* m) {
    return refuse(m, KernelStatus::kUnsupported, "few: paged is not supported");
  };
  const Record refused = offer(few, c);
  EXPECT_EQ(refused.status, Status::kPass) << refused.reason;
  EXPECT_EQ(refused.check->refusal->status, "unsupported");
  EXPECT_EQ(refused.check->refusal->step, "supports");
}

TEST(Refusals, WithoutWordsOrWithTracesFail) {
  Kernel k = careless();
  k.launch = [](const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kBadArgument; };
  const Case c = case_of(fmt::format("{{{}, expect: refused}}", kPaged));
  EXPECT_THAT(offer(k, c).reason, HasSubstr("without a message"));
  k.launch = [](const OpParams* p, const LaunchContext*, KernelMessage* m) {
    p->attention.lse[0] = 1;
    return refuse(m, KernelStatus::kBadArgument, "k: no");
  };
  EXPECT_THAT(offer(k, c).reason, HasSubstr("outputs were written"));
}

TEST(Refusals, AFailedLaunchIsNoRefusal) {
  Kernel k = careless();
  k.launch = [](const OpParams*, const LaunchContext*, KernelMessage* m) {
    return refuse(m, KernelStatus::kDeviceError, "k: out of registers");
  };
  const Record r = offer(k, case_of(fmt::format("{{{}, expect: refused}}", kPaged)));
  EXPECT_EQ(r.status, Status::kError);
  EXPECT_THAT(r.reason, HasSubstr("out of registers"));
}

}  // namespace
}  // namespace attnbench
