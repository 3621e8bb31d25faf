// The tensors of a custom mask, as a launch gets them: a bit for each query and key, packed as FlashInfer packs them.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/tensors/plan.h"

namespace attnbench {

struct PackedMask {
  std::vector<uint8_t> bytes;
  std::vector<int32_t> indptr;  ///< (B + 1), in bytes
};

/// The mask of a case in this layout; without bytes if it has none. Bits that belong to no query and key are 1: those
/// behind a sequence's last one, `lead_rows` bytes before the first sequence and a byte behind the last.
PackedMask packed_mask_of(const Case& c, const LayoutVariant& variant = {});

}  // namespace attnbench
