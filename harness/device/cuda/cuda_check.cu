#include "harness/device/cuda/cuda_check.h"

#include <string>

#include "harness/device/device.h"

namespace attnbench {
namespace {

/// Errors after which every further call of this process fails in the same way (CUDA calls them "sticky").
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
  // Later CUDA versions have more sticky errors. These come back from a call that cannot fail otherwise.
  std::size_t free_bytes = 0, total_bytes = 0;
  const bool lost = cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess;
  cudaGetLastError();
  return lost;
}

}  // namespace

void throw_cuda(cudaError_t error, const char* what) {
  cudaGetLastError();  // clears an error that is not sticky, so that the next check does not see it
  const std::string text =
      std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  throw DeviceError(text, is_sticky(error));
}

}  // namespace attnbench
