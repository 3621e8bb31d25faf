#include "harness/device/cuda/cuda_probe.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>

#include "harness/device/cuda/cuda_check.h"
#include "harness/device/cuda/gpu_pages.cuh"

namespace attnbench {
namespace {

constexpr int kMinComputeCapability = 80;

/// 13000 -> "13.0"
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return value;
}

int compute_capability(int ordinal) {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor, ordinal) +
         attribute(cudaDevAttrComputeCapabilityMinor, ordinal);
}

/// The meaning of an error of cudaGetDeviceCount, in words.
std::string reason_of(cudaError_t error) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  cudaGetLastError();
  if (driver == 0 && (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice)) {
    return "no NVIDIA driver is installed here (libcuda.so.1 was not found)";
  }
  if (error == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is too old: it serves CUDA " + version_text(driver) +
           ", this program was built with " + version_text(CUDART_VERSION);
  }
  if (error == cudaErrorNoDevice) return "the NVIDIA driver finds no GPU (is CUDA_VISIBLE_DEVICES set?)";
  return std::string("CUDA does not start: ") + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

}  // namespace

std::vector<int> usable_cuda_ordinals(std::string& reason) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    cudaGetLastError();
    reason = reason_of(error == cudaSuccess ? cudaErrorNoDevice : error);
    return {};
  }
  std::vector<int> usable;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const int capability = compute_capability(ordinal);
    if (capability >= kMinComputeCapability) {
      usable.push_back(ordinal);
    } else if (reason.empty()) {
      cudaDeviceProp properties{};
      cuda_check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
      reason = std::string("compute capability 8.0 required, ") + properties.name + " has " +
               std::to_string(capability / 10) + "." + std::to_string(capability % 10);
    }
  }
  if (!usable.empty()) reason.clear();
  return usable;
}

DeviceProbe probe_cuda() {
  DeviceProbe probe;
  try {
    const std::vector<int> usable = usable_cuda_ordinals(probe.cuda_reason);
    probe.cuda_devices = static_cast<int>(usable.size());
    probe.shared_cuda = !usable.empty() && std::ranges::all_of(usable, can_share_gpu);
  } catch (const DeviceError& error) {
    probe.cuda_devices = 0;
    probe.cuda_reason = error.what();
  }
  return probe;
}

DeviceInfo cuda_device_info(int cuda_ordinal, int index) {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, cuda_ordinal), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.name = "cuda:" + std::to_string(index);
  info.model = properties.name;
  info.uuid = uuid_text(properties.uuid);
  info.driver = "CUDA driver " + version_text(driver);
  info.runtime = "CUDA runtime " + version_text(runtime);
  info.compute_capability = compute_capability(cuda_ordinal);
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.cache_bytes = properties.l2CacheSize;
  info.clock_mhz =
      attribute(cudaDevAttrClockRate, cuda_ordinal) / 1e3;  // CUDA 13 removed the field of cudaDeviceProp
  // Two transfers per clock; the attributes are in kHz and bits.
  info.memory_gbs = 2.0 * attribute(cudaDevAttrMemoryClockRate, cuda_ordinal) * 1e3 *
                    attribute(cudaDevAttrGlobalMemoryBusWidth, cuda_ordinal) / 8 * 1e-9;
  return info;
}

}  // namespace attnbench
