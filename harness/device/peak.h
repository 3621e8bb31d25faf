// What the hardware cannot exceed, whatever was measured: multipliers times the highest clock, and memory
// clock times bus width. A measured ceiling can be beaten, because a matrix product runs into the power limit
// and a shorter kernel may not. These limits cannot be beaten.
#pragma once

#include <optional>

#include "harness/device/device.h"

namespace attnbench {

/// Dense FLOP (2 per multiply-add) per multiprocessor and clock for inputs of this type, at the faster of
/// fp16 and fp32 accumulation. For fp32 it is the TF32 rate, since fp32 may be made of TF32 products. Returns
/// nullopt for a compute capability that is not in the table. Sources: NVIDIA's architecture whitepapers
/// (A100, GA102, Ada, H100, Blackwell), as peak rate / (multiprocessors * boost clock).
std::optional<double> flop_per_clock(int compute_capability, DType dtype);

/// The same for the whole GPU at its highest clock, in TFLOP/s; nullopt for a CPU or if a factor is unknown.
std::optional<double> peak_tflops(const DeviceInfo& device, DType dtype);

}  // namespace attnbench
