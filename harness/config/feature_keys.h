// The keys of a sweep file that need a feature of a kernel, for people who know the one and not the other.
#pragma once

#include <cstdint>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// A mapping whose cases of the op need this bit of Feature: "kv_dtype: e4m3". Empty for an unknown bit.
const char* key_that_needs(uint64_t feature, Op op);

}  // namespace attnbench
