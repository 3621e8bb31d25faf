// Launches that contradict the contract, made from sound ones.
#pragma once

#include "harness/config/case_params.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// Makes the parameters of a launch contradict the contract in one thing. The case must have that thing
/// (harness/cases/expand.cpp checks it). kPointer changes nothing in parameters that have no pointers yet, nor
/// does kBlockTable before the table is there.
void spoil(BadLaunch how, OpParams& params);

}  // namespace attnbench
