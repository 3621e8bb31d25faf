// The example itself: the time to which those of cheats compare.
#include "tests/cheats/cheat.h"

ATTNBENCH_CHEAT(plain, "the example as it is");
