// The server that a ServingSpec describes.
#pragma once

#include "harness/config/serving_spec.h"
#include "harness/serving/scheduler.h"

namespace attnbench {

/// Throws Error if the cache holds no block of this size.
KvCacheOptions cache_options(const ServingSpec& spec, int32_t block_size);

SchedulerOptions scheduler_options(const ServingSpec& spec);

}  // namespace attnbench
