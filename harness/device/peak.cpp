#include "harness/device/peak.h"

namespace attnbench {
namespace {

/// For bf16 and fp16 inputs, dense.
std::optional<double> half_flop_per_clock(int compute_capability) {
  switch (compute_capability) {
    case 80:
      return 2048;  // A100: 312 TFLOP/s, 108 SM, 1410 MHz
    case 86:
    case 87:
    case 89:
      return 1024;  // A40: 149.7, 84 SM, 1740 MHz; L40S: 362, 142 SM, 2520 MHz
    case 90:
      return 4096;  // H100 SXM: 989.4, 132 SM, 1830 MHz
    case 100:
    case 103:
      return 8192;  // B200: 2250, 148 SM, 1850 MHz
    case 120:
    case 121:
      return 1024;  // RTX 5090 with fp16 accumulation: 419, 170 SM, 2407 MHz
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<double> flop_per_clock(int compute_capability, DType dtype) {
  const std::optional<double> half = half_flop_per_clock(compute_capability);
  if (!half) return std::nullopt;
  switch (dtype) {
    case DType::kBf16:
    case DType::kFp16:
      return *half;
    case DType::kFp32:
      return *half / 2;
    default:  // 8-bit types: twice the rate from sm_89 on; older GPUs widen them
      return 2 * *half;
  }
}

std::optional<double> peak_tflops(const DeviceInfo& device, DType dtype) {
  const std::optional<double> flop = flop_per_clock(device.compute_capability, dtype);
  if (device.kind != DeviceKind::kCuda || !flop || device.clock_mhz <= 0 || device.multiprocessors <= 0) {
    return std::nullopt;
  }
  return *flop * device.multiprocessors * device.clock_mhz * 1e-6;
}

}  // namespace attnbench
