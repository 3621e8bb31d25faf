// What the hardware cannot exceed, whatever was measured: multipliers times the highest clock, and memory
// clock times bus width. A measured ceiling can be beaten (a matrix product runs into the power limit where a
// shorter kernel does not); this cannot.
#pragma once

#include <optional>

#include "harness/device/device.h"

namespace attnbench {

/// Dense FLOP (2 per multiply-add) of one multiprocessor a clock for inputs of this type, at the faster of
/// fp16 and fp32 accumulation; for fp32 the TF32 rate, since fp32 may be made of TF32 products. nullopt for a
/// compute capability that is not in the table. Sources: NVIDIA's architecture whitepapers (A100, GA102, Ada,
/// H100, Blackwell), as peak rate / (multiprocessors * boost clock).
std::optional<double> flop_per_clock(int compute_capability, DType dtype);

/// The above for the whole GPU at its highest clock, in TFLOP/s; nullopt for a CPU and where a factor is
/// unknown.
std::optional<double> peak_tflops(const DeviceInfo& device, DType dtype);

}  // namespace attnbench
