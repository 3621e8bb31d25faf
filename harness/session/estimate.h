// How long a run will take, before it is run: a range, from what each case computes and moves.
#pragma once

#include <cstdint>

#include "harness/config/case_params.h"
#include "harness/facts/verdict.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// What an estimate needs to know of a machine, which need not be this one.
struct Machine {
  DeviceKind device = DeviceKind::kCpu;
  int threads = 8;                          ///< of the host, which computes the reference
  int64_t cache_bytes = int64_t{32} << 20;  ///< CPU: the last level
};

/// Seconds of wall time, at least and at most.
struct Seconds {
  double least = 0, most = 0;
  Seconds operator+(const Seconds& o) const { return {least + o.least, most + o.most}; }
  double middle() const { return (least + most) / 2; }
};

/// The two parts of a case; --no-time leaves the second out.
struct CaseSeconds {
  Seconds check;  ///< set-up and verification, with the invariants where they are asked for
  Seconds time;   ///< samples, with a cold cache and the default stopping rule
  CaseSeconds operator+(const CaseSeconds& o) const { return {check + o.check, time + o.time}; }
};

/// One case on one kernel that is about as fast as those of this program. The same on every machine.
CaseSeconds estimated_seconds(const CaseParams& params, const Machine& machine, CheckMode check,
                              bool invariants);

/// What a run takes beside its cases: processes, the device and, where cases are timed, its ceilings.
CaseSeconds estimated_start(const Machine& machine);

}  // namespace attnbench
