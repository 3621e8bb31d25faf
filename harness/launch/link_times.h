// What exchanges between devices take alone: the ceilings of communication.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/device/ranks.h"

namespace attnbench {

/// Kinds of exchanges, as they are called in records: NCCL's, and a kernel that reads the peers' memory.
inline constexpr const char* kAllGatherLink = "all_gather";
inline constexpr const char* kReduceScatterLink = "reduce_scatter";
inline constexpr const char* kAllToAllLink = "all_to_all";
inline constexpr const char* kPeerReadLink = "peer_read";

/// Bytes that are measured, in rising order.
inline constexpr int64_t kLinkBytes[] = {8 << 10, 64 << 10, 512 << 10, 4 << 20, 64 << 20};

/// Times exchanges of all kinds. Without NCCL only peer_read is there. Throws OutOfMemory, DeviceError.
std::vector<Ceilings::Link> link_times(RankTeam& team, std::span<const int64_t> bytes = kLinkBytes);

/// Adds the times for so many ranks to the device's ceilings, if they are not there.
void add_links(Device& device, int32_t ranks, const std::vector<DType>& ceiling_dtypes);

/// The time for so many bytes, between the measured sizes next to it; nullopt if the kind was not measured.
std::optional<double> link_us(std::span<const Ceilings::Link> links, const char* what, int32_t ranks,
                              int64_t bytes);

}  // namespace attnbench
