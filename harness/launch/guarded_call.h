// Calls into a kernel: what they throw becomes a KernelError, and a crash in one is reported with its name.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string>

#include "harness/device/device.h"
#include "harness/error.h"
#include "harness/launch/last_words.h"
#include "harness/launch/process_state.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// A kernel that failed to plan or launch; what() is its own message.
class KernelError : public Error {
 public:
  explicit KernelError(const std::string& what) : Error(what, kExitFailure) {}
};

/// A kernel that wrote to an input, or touched memory that it must not see; what() says where.
class MemoryFault : public KernelError {
 public:
  MemoryFault(const std::string& what, bool to_input) : KernelError(what), wrote_to_input(to_input) {}
  bool wrote_to_input;
};

/// Throws KernelError if the function `step` has left something changed.
inline void expect_restored(const StateBefore& before, const Kernel& kernel, const char* step) {
  if (const std::string changed = before.restored(); !changed.empty())
    throw KernelError(fmt::format(
        "{}: {} changed {} and did not change it back: the reference and other kernels share it. Save and restore it",
        kernel.name, step, changed));
}

/// Turns every exception of a kernel into a KernelError. This includes std::bad_alloc, which elsewhere means
/// that the case does not fit. `scope`: the state that the function must leave as it was.
template <class Function>
auto guarded(const Kernel& kernel, const char* step, Function&& function,
             StateBefore::Scope scope = StateBefore::Scope::kThread) {
  const KernelCall in_hand(step, kernel.name);
  try {
    const StateBefore before(scope);
    auto result = function();
    expect_restored(before, kernel, step);
    return result;
  } catch (const KernelError&) {
    throw;
  } catch (const DeviceError&) {  // of the process in which it runs
    throw;
  } catch (const std::bad_alloc&) {
    throw KernelError(
        fmt::format("{}: {} failed: out of memory: it wants more than its workspace, and the "
                    "machine does not have it",
                    kernel.name, step));
  } catch (const std::exception& e) {
    throw KernelError(fmt::format("{}: {} threw an exception: {}", kernel.name, step, e.what()));
  } catch (...) {
    throw KernelError(fmt::format("{}: {} threw something that is no std::exception", kernel.name, step));
  }
}

}  // namespace attnbench
