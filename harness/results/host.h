// Facts about the host for a run's context, read from /proc and /sys. What cannot be read stays empty.
#pragma once

#include <string>
#include <vector>

#include "harness/results/record.h"

namespace attnbench {

/// Now, ISO 8601 in local time with offset: "2025-01-31T09:05:00+01:00".
std::string iso_date_now();

std::string host_name();

/// "model name" of /proc/cpuinfo, else the machine architecture.
std::string cpu_model_name();

/// Highest clock in MHz: from cpufreq, else "cpu MHz" of /proc/cpuinfo; 0 if neither is known.
double cpu_max_mhz();

/// True if a cpufreq governor other than "performance" is set.
bool cpu_scaling_enabled();

std::vector<HostCache> host_caches();
std::vector<double> load_averages();

}  // namespace attnbench
