// What a case draws from the file's seed, beside its lengths and values.
#pragma once

#include <cstdint>

#include "harness/config/case_params.h"

namespace attnbench {

/// Draws both sides of the window from 0 to the longest key length - 1, as the tests of FlashAttention do. The
/// draw depends on the seed and on the other keys of the case. No window if there is no key.
void draw_window(CaseParams& p, uint64_t seed);

/// Gives a paged case a block table whose entries are drawn from the whole pool, each on its own, so that
/// blocks repeat within and across sequences. The pool has at least pool_blocks blocks.
void draw_repeated_blocks(CaseParams& p, uint64_t seed);

}  // namespace attnbench
