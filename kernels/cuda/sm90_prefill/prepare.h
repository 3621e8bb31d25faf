// Makes the schedule on the device, from lengths that only the device knows.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/contract/attention_params.h"
#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// Enqueues the kernel that fills `schedule`, which has room for every item of the launch (launch.h). The
/// next kernel may be launched for early start: it must wait for this one before it reads the schedule.
cudaError_t launch_prepare(const AttentionParams& p, const ScheduleParams& schedule_params,
                           Schedule* schedule, cudaStream_t stream);

}  // namespace attnbench::sm90_prefill
