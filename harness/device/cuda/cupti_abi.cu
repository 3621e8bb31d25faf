// Compares harness/device/cupti_abi.h with CUPTI's headers, if the CUDA Toolkit has them. It has no code.
#if __has_include(<cupti_range_profiler.h>) && __has_include(<cupti_profiler_host.h>)
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_result.h>
#include <cupti_target.h>

#include "harness/device/cupti_abi.h"

namespace attnbench::cupti {

// The last member ends at the same place, and so do the members before it: the structs grow at their ends.
#define ATTNBENCH_SAME(ours, last, theirs, their_last)                          \
  static_assert(offsetof(ours, last) == offsetof(theirs, their_last), #theirs); \
  static_assert(sizeof(ours::last) == sizeof(theirs::their_last), #theirs);     \
  static_assert(kSize<ours> == offsetof(ours, last) + sizeof(ours::last), #theirs)

static_assert(sizeof(Result) == sizeof(CUptiResult) && kSuccess == CUPTI_SUCCESS);
static_assert(kHardwareBusy == CUPTI_ERROR_HARDWARE_BUSY);
static_assert(kInsufficientPrivileges == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
static_assert(kOldProfilerInitialized == CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED);
static_assert(kMultipleSubscribers == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
static_assert(kVirtualInsufficientPrivileges == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
static_assert(kInvalidChipName == CUPTI_ERROR_INVALID_CHIP_NAME);
static_assert(kRangeProfiler == CUPTI_PROFILER_TYPE_RANGE_PROFILER);
static_assert(kMetricCounter == CUPTI_METRIC_TYPE_COUNTER && kMetricRatio == CUPTI_METRIC_TYPE_RATIO);
static_assert(kUserRange == CUPTI_UserRange && kUserReplay == CUPTI_UserReplay);

ATTNBENCH_SAME(Initialize, unused, CUpti_Profiler_Initialize_Params, pPriv);
ATTNBENCH_SAME(ChipName, chip, CUpti_Device_GetChipName_Params, pChipName);
static_assert(offsetof(HostInitialize, chip) == offsetof(CUpti_Profiler_Host_Initialize_Params, pChipName));
ATTNBENCH_SAME(HostInitialize, host, CUpti_Profiler_Host_Initialize_Params, pHostObject);
ATTNBENCH_SAME(HostDeinitialize, host, CUpti_Profiler_Host_Deinitialize_Params, pHostObject);
static_assert(offsetof(BaseMetrics, names) ==
              offsetof(CUpti_Profiler_Host_GetBaseMetrics_Params, ppMetricNames));
ATTNBENCH_SAME(BaseMetrics, count, CUpti_Profiler_Host_GetBaseMetrics_Params, numMetrics);
ATTNBENCH_SAME(AddMetrics, count, CUpti_Profiler_Host_ConfigAddMetrics_Params, numMetrics);
ATTNBENCH_SAME(ConfigSize, bytes, CUpti_Profiler_Host_GetConfigImageSize_Params, configImageSize);
ATTNBENCH_SAME(ConfigImage, image, CUpti_Profiler_Host_GetConfigImage_Params, pConfigImage);
static_assert(offsetof(Evaluate, counters) ==
              offsetof(CUpti_Profiler_Host_EvaluateToGpuValues_Params, pCounterDataImage));
static_assert(offsetof(Evaluate, range) ==
              offsetof(CUpti_Profiler_Host_EvaluateToGpuValues_Params, rangeIndex));
ATTNBENCH_SAME(Evaluate, values, CUpti_Profiler_Host_EvaluateToGpuValues_Params, pMetricValues);
ATTNBENCH_SAME(Enable, profiler, CUpti_RangeProfiler_Enable_Params, pRangeProfilerObject);
ATTNBENCH_SAME(OfProfiler, profiler, CUpti_RangeProfiler_Disable_Params, pRangeProfilerObject);
ATTNBENCH_SAME(OfProfiler, profiler, CUpti_RangeProfiler_Start_Params, pRangeProfilerObject);
ATTNBENCH_SAME(OfProfiler, profiler, CUpti_RangeProfiler_PopRange_Params, pRangeProfilerObject);
ATTNBENCH_SAME(Stop, all_submitted, CUpti_RangeProfiler_Stop_Params, isAllPassSubmitted);
ATTNBENCH_SAME(PushRange, name, CUpti_RangeProfiler_PushRange_Params, pRangeName);
ATTNBENCH_SAME(Decode, dropped, CUpti_RangeProfiler_DecodeData_Params, numOfRangeDropped);
static_assert(offsetof(CountersSize, max_ranges) ==
              offsetof(CUpti_RangeProfiler_GetCounterDataSize_Params, maxNumOfRanges));
static_assert(offsetof(CountersSize, max_nodes) ==
              offsetof(CUpti_RangeProfiler_GetCounterDataSize_Params, maxNumRangeTreeNodes));
ATTNBENCH_SAME(CountersSize, bytes, CUpti_RangeProfiler_GetCounterDataSize_Params, counterDataSize);
ATTNBENCH_SAME(CountersInitialize, counters, CUpti_RangeProfiler_CounterDataImage_Initialize_Params,
               pCounterData);
static_assert(offsetof(SetConfig, config) == offsetof(CUpti_RangeProfiler_SetConfig_Params, pConfig));
static_assert(offsetof(SetConfig, counters) ==
              offsetof(CUpti_RangeProfiler_SetConfig_Params, pCounterDataImage));
static_assert(offsetof(SetConfig, range) == offsetof(CUpti_RangeProfiler_SetConfig_Params, range));
static_assert(offsetof(SetConfig, replay) == offsetof(CUpti_RangeProfiler_SetConfig_Params, replayMode));
static_assert(offsetof(SetConfig, max_ranges) ==
              offsetof(CUpti_RangeProfiler_SetConfig_Params, maxRangesPerPass));
static_assert(offsetof(SetConfig, num_levels) ==
              offsetof(CUpti_RangeProfiler_SetConfig_Params, numNestingLevels));
static_assert(offsetof(SetConfig, min_level) ==
              offsetof(CUpti_RangeProfiler_SetConfig_Params, minNestingLevel));
static_assert(offsetof(SetConfig, pass) == offsetof(CUpti_RangeProfiler_SetConfig_Params, passIndex));
ATTNBENCH_SAME(SetConfig, target_level, CUpti_RangeProfiler_SetConfig_Params, targetNestingLevel);
ATTNBENCH_SAME(CountersInfo, ranges, CUpti_RangeProfiler_GetCounterDataInfo_Params, numTotalRanges);

}  // namespace attnbench::cupti
#endif
