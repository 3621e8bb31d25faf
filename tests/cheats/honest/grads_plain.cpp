// The right kernel of gradients: the time to which those of cheats compare.
#include "tests/cheats/cheat_gradients.h"

ATTNBENCH_CHEAT(grads_plain, "gradients, pair by pair");
