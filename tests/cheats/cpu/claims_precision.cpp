// Declares P and accumulators in fp32 and rounds both to bf16 after every step.
// Source: a "precision downgrade" is among the known hacks of KernelBench (Makora, "Reward hacks", 2025).
#include "tests/cheats/changed_attention.h"

namespace attnbench::cheats {
namespace {

float rounded(float x) {
  uint16_t bits;
  store_float(DType::kBf16, &bits, 0, x);
  return load_float(DType::kBf16, &bits, 0);
}

KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage*) {
  attend_all(op->attention, {.rounded = rounded});
  return KernelStatus::kOk;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(claims_precision, "declares P and accumulators in fp32, and rounds both to bf16",
                k.launch = attnbench::cheats::launch);
