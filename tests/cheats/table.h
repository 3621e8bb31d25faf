// The table of a plug-in with one kernel: a right kernel in which something is changed.
#pragma once

#include "kernels/contract/plugin.h"

/// The table of the cheat NAME: attnbench::cheats::kRight with what the statements change in `k`.
#define ATTNBENCH_CHEAT(NAME, SUMMARY, ...)               \
  static const ::attnbench::Kernel attnbench_cheat = [] { \
    ::attnbench::Kernel k = ::attnbench::cheats::kRight;  \
    k.name = #NAME;                                       \
    k.summary = SUMMARY;                                  \
    __VA_ARGS__;                                          \
    return k;                                             \
  }();                                                    \
  ATTNBENCH_PLUGIN(&attnbench_cheat)
