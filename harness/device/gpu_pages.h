// Memory of a GPU that two processes see at the same addresses: a judge owns it, and the process in which a kernel runs
// maps it. The memory beside a tensor is not mapped there.
#pragma once

#include <cstdint>
#include <functional>

#include "harness/device/shared_memory.h"

namespace attnbench {

/// Pages that appear in the kernel's process, or leave it.
struct GpuPages {
  uint64_t address;
  int64_t bytes;
  int64_t unit;  ///< bytes of each mapping; the memory of the file is mapped as often as needed
  Access access;
  int file;  ///< to be mapped and closed; negative: they leave
};

/// In the kernel's process. This program's own work around a launch (changed signs, digests) uses a second mapping, which
/// can be written to and holds what the kernel must not see: at `p` plus a constant. All of a hole is the same
/// little memory there.
void* second_place(const void* p);

/// The same process, before the first pages: keeps addresses free on the GPU in use. Throws DeviceError.
void reserve_gpu_pages();
void apply(const GpuPages& pages);

/// In the same process: what is enqueued on `stream` from now on waits until the word `at`, which the judge writes, is
/// `ticket`.
void enqueue_wait(void* stream, const void* at, uint32_t ticket);

}  // namespace attnbench
