// Exports a cudaEventElapsedTime of its own, in the hope that the program finds it here. It divides the time by
// ten.
// Source: gpu-mode/reference-kernels #162 (a patched Event.elapsed_time).
#include <dlfcn.h>

#include "tests/cheats/cheat_cuda.h"

extern "C" __attribute__((visibility("default"))) cudaError_t cudaEventElapsedTime(float* ms,
                                                                                   cudaEvent_t begin,
                                                                                   cudaEvent_t end) {
  using Function = int (*)(float*, cudaEvent_t, cudaEvent_t);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "cuEventElapsedTime"));
  if (real == nullptr || real(ms, begin, end) != 0) return cudaErrorNotReady;
  *ms /= 10;
  return cudaSuccess;
}

ATTNBENCH_CHEAT(patches_events, "exports a cudaEventElapsedTime of its own");
