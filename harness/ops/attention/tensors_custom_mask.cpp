#include "harness/ops/attention/tensors_custom_mask.h"

#include "harness/cases/mask_bits.h"

namespace attnbench {

PackedMask packed_mask_of(const Case& c, const LayoutVariant& variant) {
  PackedMask mask;
  if (c.params.custom_mask == CustomMask::kNone) return mask;
  mask.bytes.assign(static_cast<std::size_t>(variant.lead_rows), 0xff);
  mask.indptr.push_back(variant.lead_rows);
  for (std::size_t b = 0; b < c.params.seqs.size(); ++b) {
    const SeqLen len = c.params.seqs[b];
    const MaskBits bits(c.params.custom_mask, c.seed, variant.seq_id(b), len);
    const std::size_t begin = mask.bytes.size();
    const int64_t pairs = int64_t{len.q} * len.k;
    mask.bytes.resize(begin + static_cast<std::size_t>((pairs + 7) / 8), 0xff);
    int64_t n = 0;
    for (int64_t i = 0; i < len.q; ++i) {
      for (int64_t j = 0; j < len.k; ++j, ++n) {
        if (bits.sees(i, j)) continue;
        uint8_t& byte = mask.bytes[begin + static_cast<std::size_t>(n / 8)];
        byte = static_cast<uint8_t>(byte & ~(1u << (n % 8)));
      }
    }
    mask.indptr.push_back(static_cast<int32_t>(mask.bytes.size()));
  }
  mask.bytes.push_back(0xff);
  return mask;
}

}  // namespace attnbench
