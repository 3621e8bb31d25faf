// The plan of a kv_move.
#pragma once

#include "harness/workload/plan.h"

namespace attnbench {

/// The case with blocks for the copies in its pool.
CaseParams with_room_for_copies(CaseParams params);

/// Makes the plan of a kv_move of one whose pool is planned, by its own params, as that of attention.
///
/// Blocks: rows of the sequences' blocks that hold no key get values, too, because blocks move whole. All
/// destinations hold poison before the launch. In a second pool all other rows hold values.
/// Gather: rows before and behind those that the launch writes hold values.
void plan_move(const CaseParams& params, uint64_t seed, int32_t lead_rows, WorkloadPlan& plan);

}  // namespace attnbench
