// Faults of custom masks: bits that are not read, or read from the wrong place.
#include <iterator>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define SMALL "dtype: bf16, heads: 8/2, head_dim: 64"
constexpr const char* kRandomMask[] = {
    "{kv: packed, " SMALL ", mask: none, custom_mask: random, batch: q9s61_q5s37}",
    "{kv: paged, block_size: 16, " SMALL ", mask: none, custom_mask: random, batch: q9s61_q5s37}",
};
constexpr const char* kTreeMask[] = {
    "{kv: paged, block_size: 16, " SMALL ", mask: none, custom_mask: tree, batch: q7s45_q9s70_q5s33}",
    "{kv: packed, " SMALL ", mask: none, custom_mask: tree, batch: q7s45_q9s70_q5s33}",
};
constexpr const char* kItemMask[] = {
    "{kv: packed, " SMALL ", mask: causal, custom_mask: items, batch: q41_q30s77}",
    "{kv: paged, block_size: 16, " SMALL ", mask: causal, custom_mask: items, batch: q41_q30s77}",
};
constexpr const char* kBlockMask[] = {
    "{kv: packed, " SMALL ", mask: none, custom_mask: blocks, batch: q40s101_q20s150}",
    "{kv: paged, block_size: 16, " SMALL ", mask: none, custom_mask: blocks, batch: q40s101_q20s150}",
};

}  // namespace

FaultClass custom_mask_faults() {
  return {"custom masks",
          {known("custom_mask_ignored", "every key is seen that the other masks show",
                 {std::begin(kBlockMask), std::end(kBlockMask)}, {"custom_mask: blocks"}),
           known("custom_mask_from_the_highest_bit",
                 "bits are counted from the highest of a byte, as NumPy packs them",
                 {std::begin(kRandomMask), std::end(kRandomMask)}, {"custom_mask: random"}),
           known("custom_mask_of_sequence_0", "the bits of sequence 0 are taken for all sequences",
                 {std::begin(kTreeMask), std::end(kTreeMask)}, {"custom_mask: tree"}),
           known("custom_mask_rows_padded", "each row of bits is taken to begin a byte",
                 {std::begin(kItemMask), std::end(kItemMask)}, {"custom_mask: items"})}};
}

}  // namespace attnbench
