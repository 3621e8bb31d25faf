#include "tests/faults/slow.h"

#include <chrono>

namespace attnbench::faults {
namespace {

template <int kPercent>
KernelStatus slow_cpu(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  using Clock = std::chrono::steady_clock;
  static const Kernel& kernel = *first_attention_kernel(DeviceKind::kCpu);
  const auto begin = Clock::now();
  const KernelStatus status = kernel.launch(p, c, m);
  const auto took = Clock::now() - begin;
  const auto end = begin + took + took * kPercent / 100;
  while (Clock::now() < end) {
  }
  return status;
}

struct Slow {
  int percent;
  const char* name;
  const char* summary;
  KernelStatus (*cpu)(const OpParams*, const LaunchContext*, KernelMessage*);
};
constexpr Slow kSlow[] = {
    {0, "slow_0_percent", "right, as slow as the first kernel", slow_cpu<0>},
    {2, "slow_2_percent", "right, takes 2 % longer", slow_cpu<2>},
    {3, "slow_3_percent", "right, takes 3 % longer", slow_cpu<3>},
    {5, "slow_5_percent", "right, takes 5 % longer", slow_cpu<5>},
    {10, "slow_10_percent", "right, takes 10 % longer", slow_cpu<10>},
    {20, "slow_20_percent", "right, takes 20 % longer", slow_cpu<20>},
    {250, "slow_250_percent", "right, takes 3.5 times as long", slow_cpu<250>},
};

}  // namespace

const Kernel* first_attention_kernel(DeviceKind device) {
  for (const Kernel* k : builtin_kernels()) {
    if (k->op == Op::kAttention && k->device == device) return k;
  }
  return nullptr;
}

std::vector<Kernel> slow_kernels() {
  std::vector<Kernel> out;
  const auto add = [&](const Kernel* good, const Slow& slow, auto launch) {
    if (good == nullptr || launch == nullptr) return;
    Kernel k = *good;
    k.name = slow.name;
    k.summary = slow.summary;
    k.launch = launch;
    out.push_back(k);
  };
  for (const Slow& s : kSlow) {
    add(first_attention_kernel(DeviceKind::kCpu), s, s.cpu);
#if ATTNBENCH_FAULTS_CUDA
    add(first_attention_kernel(DeviceKind::kCuda), s, slow_cuda_launch(s.percent));
#endif
  }
  return out;
}

}  // namespace attnbench::faults
