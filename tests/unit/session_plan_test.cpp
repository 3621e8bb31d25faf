// Shares of a plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/session/estimate.h"
#include "harness/session/plan.h"

namespace attnbench {
namespace {

std::vector<Case> some_cases() {
  std::vector<Case> cases;
  for (int i = 1; i <= 60; ++i) {
    Case c;
    c.params.seqs = {{i * 16, i * 64}, {1, 1 << (i % 14)}};
    c.id = case_id(c.params);
    cases.push_back(c);
  }
  return cases;
}

Kernel named(const char* name) {
  Kernel k{};
  k.name = name;
  return k;
}

std::vector<WorkItem> plan_of(const std::vector<Case>& cases, const std::vector<const Kernel*>& kernels) {
  std::vector<WorkItem> work;
  for (const Case& c : cases) {
    for (const Kernel* k : kernels) work.push_back({&c, k, static_cast<int64_t>(work.size())});
  }
  return work;
}

std::set<std::string> ids(const std::vector<WorkItem>& work) {
  std::set<std::string> out;
  for (const WorkItem& w : work) out.insert(w.item->id);
  return out;
}

TEST(Shard, SharesAreAllOfThePlanAndNothingTwice) {
  const auto cases = some_cases();
  const Kernel a = named("a"), b = named("b");
  const auto work = plan_of(cases, {&a, &b});
  for (const int n : {1, 2, 7, 60, 100}) {
    std::vector<int64_t> all;
    for (int i = 1; i <= n; ++i) {
      const auto share = shard_of(work, DeviceKind::kCpu, i, n);
      EXPECT_TRUE(std::is_sorted(share.begin(), share.end(),
                                 [](const WorkItem& x, const WorkItem& y) { return x.index < y.index; }));
      for (const WorkItem& w : share) all.push_back(w.index);
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), work.size()) << n;
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int64_t>(i));
  }
}

TEST(Shard, DependsOnIdsNotOnOrder) {
  const auto cases = some_cases();
  auto turned = cases;
  std::reverse(turned.begin(), turned.end());
  const Kernel k = named("k");
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(ids(shard_of(plan_of(cases, {&k}), DeviceKind::kCuda, i, 5)),
              ids(shard_of(plan_of(turned, {&k}), DeviceKind::kCuda, i, 5)));
  }
}

TEST(Shard, SharesCostAboutTheSame) {
  const auto cases = some_cases();
  const Kernel k = named("k");
  const auto work = plan_of(cases, {&k});
  double least = 1e30, most = 0;
  for (int i = 1; i <= 6; ++i) {
    double cost = 0;
    for (const WorkItem& w : shard_of(work, DeviceKind::kCpu, i, 6)) {
      const CaseSeconds s = estimated_seconds(w.item->params, {}, CheckMode::kSampled, false);
      cost += (s.check + s.time).middle();
    }
    least = std::min(least, cost);
    most = std::max(most, cost);
  }
  EXPECT_LT(most, 1.1 * least);
}

TEST(PlanDigest, TellsPlansApart) {
  auto cases = some_cases();
  const Kernel a = named("a"), b = named("b");
  std::set<std::string> digests = {plan_digest(plan_of(cases, {&a})), plan_digest(plan_of(cases, {&b})),
                                   plan_digest(plan_of(cases, {&a, &b})), plan_digest({})};
  EXPECT_EQ(digests.size(), 4u);
  cases[3].seed = 2;
  EXPECT_TRUE(digests.insert(plan_digest(plan_of(cases, {&a}))).second);
  cases.pop_back();
  EXPECT_TRUE(digests.insert(plan_digest(plan_of(cases, {&a}))).second);
}

}  // namespace
}  // namespace attnbench
