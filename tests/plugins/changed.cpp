// Other builds of the example under its name: WRONG, SLOW, CRASHES (on one head dimension), or FLUSHES (subnormal floats to
// 0, as a library that is linked with -ffast-math).
#if defined(FLUSHES) && defined(__SSE__)
#include <immintrin.h>
#endif

#include <chrono>
#include <csignal>
#include <thread>

#include "kernels/contract/plugin.h"
#undef ATTNBENCH_PLUGIN
#define ATTNBENCH_PLUGIN(...) static_assert(true)  // the example without its table
#include "kernels/examples/cpu/kernel.cpp"         // NOLINT(bugprone-suspicious-include)

namespace attnbench::changed {

#ifdef FLUSHES
const bool flushes = [] {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(uint64_t{1} << 24));
#endif
  return true;
}();
#endif

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  [[maybe_unused]] const AttentionParams& p = op->attention;
#ifdef CRASHES
  if (p.head_dim == 24) std::raise(SIGSEGV);
#endif
#ifdef SLOW
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
#endif
  const KernelStatus status = example::kAttention.launch(op, context, message);
#ifdef WRONG
  if (p.total_q > 0) store_float(p.dtype_out, p.out, 0, load_float(p.dtype_out, p.out, 0) + 1);
#endif
  return status;
}

const Kernel kAttention = [] {
  Kernel k = example::kAttention;
  k.launch = launch;
  return k;
}();

constexpr const Kernel* kKernels[] = {&kAttention};

}  // namespace attnbench::changed

extern "C" const attnbench::Plugin attnbench_plugin;
const attnbench::Plugin attnbench_plugin = attnbench::plugin_of(attnbench::changed::kKernels);
