#include "tests/faults/slow.h"

#include <ctime>

namespace attnbench::faults {
namespace {

/// CPU time of this thread, which a busy machine does not lengthen.
double thread_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

template <int kPercent>
KernelStatus slow_cpu(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static const Kernel& kernel = *first_attention_kernel(DeviceKind::kCpu);
  const double begin = thread_us();
  const KernelStatus status = kernel.launch(p, c, m);
  const double end = begin + (thread_us() - begin) * (1 + kPercent / 100.0);
  while (thread_us() < end) {
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
    {100, "slow_100_percent", "right, takes twice as long", slow_cpu<100>},
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
