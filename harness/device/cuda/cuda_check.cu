#include "harness/device/cuda/cuda_check.h"

#include <string>

#include "harness/device/device.h"

namespace attnbench {
namespace {

/// Errors after which every further call of this process fails in the same way ("sticky" in CUDA's terms).
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown:
      return true;
    default:
      break;
  }
  // Later CUDA versions know more of them: a sticky error comes back from a call that cannot fail otherwise.
  std::size_t free_bytes = 0, total_bytes = 0;
  const bool lost = cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess;
  cudaGetLastError();
  return lost;
}

}  // namespace

void throw_cuda(cudaError_t error, const char* what) {
  cudaGetLastError();  // an error that is not sticky must not be met again by the next check
  const std::string text =
      std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  throw DeviceError(text, is_sticky(error));
}

}  // namespace attnbench
