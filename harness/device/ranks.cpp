#include "harness/device/ranks.h"

#include <fmt/format.h>

namespace attnbench {

RankTeam* Device::rank_team(int32_t ranks, std::string& why_not) {
  why_not = fmt::format("{} ranks apart need {} GPUs, and {} is one device", ranks, ranks, info().name);
  return nullptr;
}

Nccl* nccl_of(RankTeam& team, std::string& why_not) {
  if (team.nccl != nullptr) return team.nccl.get();
  std::vector<Nccl::Rank> ranks;
  for (int32_t r = 0; r < team.ranks(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    ranks.push_back({team.devices[i]->launch_context().device_ordinal, team.streams[i]->stream()});
  }
  const std::vector<std::string> libraries =
      team.nccl_library.empty() ? Nccl::usual_libraries() : std::vector<std::string>{team.nccl_library};
  team.nccl = Nccl::open(ranks, libraries, why_not);
  return team.nccl.get();
}

}  // namespace attnbench
