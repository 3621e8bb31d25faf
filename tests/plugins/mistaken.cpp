// Libraries that are passed to --plugin by mistake: one macro, one mistake. Without a macro it is a GPU
// kernel that does nothing.
#include <csignal>
#include <cstdlib>

#include "kernels/contract/plugin.h"

namespace attnbench::mistaken {

KernelStatus supports(const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; }
Numerics numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0x1p-22}; }
KernelStatus launch(const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; }

const Kernel kKernel{
    .abi_version = kKernelAbiVersion,
#ifdef BAD_NAME
    .name = "Mine-2",
#else
    .name = "mistaken",
#endif
    .summary = "does nothing",
    .shapes = "any",
    .op = Op::kMergeStates,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 80,
    .features = kBf16,
    .supports = supports,
    .numerics = numerics,
#ifndef NO_LAUNCH
    .launch = launch,
#endif
    .instances = "d8 .head_dim = 8, .use = Use::kAll, .split = true\nd64_full .head_dim = 64\n",
};

constexpr const Kernel* kKernels[] = {&kKernel};

/// A table of this revision's headers, except for the mistake.
constexpr Plugin table() {
  Plugin p = plugin_of(kKernels);
#ifdef OLD_ABI
  p.abi_version = kKernelAbiVersion - 1;
#endif
#ifdef OTHER_HEADERS
  p.struct_bytes[2] += 8;
#endif
#ifdef NOT_OURS
  p.magic = 0;
#endif
  return p;
}

#ifdef ENDS_AT_LOAD
int before_main = (std::exit(3), 0);
#endif
#ifdef CRASHES_AT_LOAD
int before_main = std::raise(SIGSEGV);
#endif
#ifdef UNDEFINED_SYMBOL
}  // namespace attnbench::mistaken
extern "C" int a_function_of_nobody();
namespace attnbench::mistaken {
int before_main = a_function_of_nobody();
#endif

}  // namespace attnbench::mistaken

#ifndef NO_TABLE
extern "C" const attnbench::Plugin attnbench_plugin;
const attnbench::Plugin attnbench_plugin = attnbench::mistaken::table();
#endif
