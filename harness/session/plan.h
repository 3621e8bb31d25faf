// What a run is asked to do, in a form that two processes or two machines can hold against each other: a run
// that goes on where another stopped, and the shards of one sweep.
#pragma once

#include <string>
#include <vector>

#include "harness/record/record.h"
#include "harness/session/session.h"

namespace attnbench {

/// 16 hexadecimal digits that tell plans apart: ids, kernels and seeds of all items, in order.
std::string plan_digest(const std::vector<WorkItem>& work);

/// The share of shard `index` (from 1) of `count`: whole cases with all their kernels, in the order of the
/// plan. Shares are balanced by estimated cost and depend on ids and costs alone, so that every machine
/// comes to the same ones.
std::vector<WorkItem> shard_of(const std::vector<WorkItem>& work, DeviceKind device, int index, int count);

/// Sets plan, planned and shard of a context. `whole` is the plan of all shards, `share` this run's part.
void describe_plan(RunContext& context, const std::vector<WorkItem>& whole,
                   const std::vector<WorkItem>& share, const SessionOptions& options);

/// Very rough: seconds that a case takes, from device work at a typical rate and what verification may cost.
double estimated_seconds(const CaseParams& params, DeviceKind device, int threads);

}  // namespace attnbench
