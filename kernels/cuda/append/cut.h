// How a launch of alike_kernel is cut into blocks and passes. Plain arithmetic, for host and device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/contract/hd.h"

namespace attnbench::cuda_append::alike {

/// The `blocks_y` blocks of one x go side by side from token to token, `passes` times by `token_step` tokens.
/// The blocks of the next x begin where these end. Rows are (token, head) pairs, heads within tokens.
struct Cut {
  uint32_t blocks_x, blocks_y, passes, token_step;
};

/// The first row of block (x, y).
ATTNBENCH_HD inline uint32_t first_row(uint32_t x, uint32_t y, uint32_t blocks_y, uint32_t passes,
                                       uint32_t rows_per_block) {
  return (x * passes * blocks_y + y) * rows_per_block;
}

/// Cuts a launch of at most 2^30 rows of at most 65,535 heads. Between two passes of a lane lies a whole
/// number of tokens, so that it keeps its head. If `room` blocks need at most `most_staying` passes, all
/// blocks stay for the whole launch. Otherwise there are many blocks of few passes each, so that a
/// multiprocessor that is early does more of them.
inline Cut cut_of(uint32_t tokens, uint32_t heads, uint32_t rows_per_block, uint32_t room,
                  uint32_t most_staying) {
  constexpr uint32_t kInARow = 8;  // up to this many passes, a block's tokens follow each other
  constexpr uint32_t kShort = 2;   // passes of a block in longer launches whose blocks do not stay
  const uint32_t needed = (tokens * heads + rows_per_block - 1) / rows_per_block;
  const uint32_t group = heads / std::gcd(heads, rows_per_block);  // this many blocks do whole tokens
  Cut cut{1, needed, (needed + room - 1) / room, 0};
  if (cut.passes > kInARow && cut.passes <= most_staying) {
    cut.blocks_y = std::max(room / group, 1u) * group;
    cut.passes = (needed + cut.blocks_y - 1) / cut.blocks_y;
  } else if (cut.passes > 1) {
    if (cut.passes > kInARow) cut.passes = kShort;
    cut.blocks_y = group;
    cut.blocks_x = (needed + group * cut.passes - 1) / (group * cut.passes);
  }
  cut.token_step = cut.blocks_y * rows_per_block / heads;
  return cut;
}

}  // namespace attnbench::cuda_append::alike
