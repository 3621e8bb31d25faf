// The GPU's own clock.
#pragma once

namespace attnbench {

/// Nanoseconds; an instruction, which a kernel cannot replace.
__device__ inline unsigned long long global_time() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace attnbench
