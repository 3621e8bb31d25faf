#include "harness/launch/link_times.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "harness/launch/rank_words.h"

namespace attnbench {
namespace {

constexpr int kWarmups = 3, kSamples = 15;

/// Time of `exchange`, which enqueues on all streams, from a common start to the end of the slowest rank.
double median_us(RankTeam& team, const RankWords& words, const std::function<void()>& exchange) {
  const auto launch = [&] {
    for (std::size_t r = 1; r < team.streams.size(); ++r) team.streams[r]->wait_for(*team.streams[0]);
    for (std::size_t r = 0; r < team.streams.size(); ++r) team.streams[r]->meet(words.of(r));
    for (RankStream* s : team.streams) s->mark(0);
    exchange();
    for (RankStream* s : team.streams) s->mark(1);
    for (std::size_t r = 1; r < team.streams.size(); ++r) team.streams[0]->wait_for(*team.streams[r]);
    team.streams[0]->make_current();
  };
  std::vector<double> us;
  for (int i = 0; i < kWarmups + kSamples; ++i) {
    team.devices[0]->time_launch(launch, CacheMode::kHot);
    double slowest = 0;
    for (RankStream* s : team.streams) slowest = std::max(slowest, s->us_between(0, 1));
    if (i >= kWarmups) us.push_back(slowest);
  }
  std::nth_element(us.begin(), us.begin() + kSamples / 2, us.end());
  return us[kSamples / 2];
}

}  // namespace

std::vector<Ceilings::Link> link_times(RankTeam& team, std::span<const int64_t> sizes) {
  const int64_t ranks = team.ranks();
  const int64_t most = *std::max_element(sizes.begin(), sizes.end()) / (16 * ranks) * 16 * ranks;
  const RankWords words(team);
  std::vector<GuardedBuffer> from, to;
  std::vector<const void*> send;
  std::vector<void*> receive;
  for (Device* device : team.devices) {
    for (auto* side : {&from, &to}) {
      side->emplace_back(*device, "exchange", most);
      device->set_bytes(side->back().data(), 0, most);
    }
    send.push_back(from.back().data());
    receive.push_back(to.back().data());
  }
  std::string why_not;
  Nccl* nccl = nccl_of(team, why_not);
  std::vector<Ceilings::Link> links;
  for (const int64_t size : sizes) {
    const int64_t each = size / (16 * ranks) * 16;  // of each rank
    const auto time = [&](const char* what, const std::function<void()>& exchange) {
      links.push_back({what, team.ranks(), each * ranks, median_us(team, words, exchange)});
    };
    time(kPeerReadLink, [&] {
      for (std::size_t r = 0; r < team.streams.size(); ++r) {
        Gathering g{.bytes = each, .ranks = team.ranks(), .to = receive[r]};
        std::copy(send.begin(), send.end(), g.from);
        team.streams[r]->gather(g, words.of(r));
      }
    });
    if (nccl == nullptr) continue;
    time(kAllGatherLink, [&] { nccl->all_gather({send, receive}, each); });
    time(kReduceScatterLink, [&] { nccl->reduce_scatter({send, receive}, each / 2, DType::kBf16); });
    time(kAllToAllLink, [&] {
      const Nccl::Buffers buffers[] = {{send, receive}};
      nccl->all_to_all(buffers, {&each, 1});
    });
  }
  team.streams[0]->make_current();
  return links;
}

void add_links(Device& device, int32_t ranks, const std::vector<DType>& dtypes) {
  Ceilings now = device.ceilings(dtypes);
  const auto of_ranks = [&](const Ceilings::Link& l) { return l.ranks == ranks; };
  if (std::any_of(now.links.begin(), now.links.end(), of_ranks)) return;
  std::string why_not;
  RankTeam* team = device.rank_team(ranks, why_not);
  if (team == nullptr) return;
  const std::vector<Ceilings::Link> measured = link_times(*team);
  now.links.insert(now.links.end(), measured.begin(), measured.end());
  device.adopt_ceilings(now);
}

std::optional<double> link_us(std::span<const Ceilings::Link> links, const char* what, int32_t ranks,
                              int64_t bytes) {
  const Ceilings::Link *below = nullptr, *above = nullptr;
  for (const Ceilings::Link& l : links) {
    if (l.what != std::string_view(what) || l.ranks != ranks) continue;
    if (l.bytes <= bytes && (below == nullptr || l.bytes > below->bytes)) below = &l;
    if (l.bytes >= bytes && (above == nullptr || l.bytes < above->bytes)) above = &l;
  }
  if (below == nullptr && above == nullptr) return std::nullopt;
  if (below == nullptr) return above->us;  // latency alone
  if (above == nullptr) return below->us * static_cast<double>(bytes) / static_cast<double>(below->bytes);
  if (above->bytes == below->bytes) return below->us;
  const double share =
      static_cast<double>(bytes - below->bytes) / static_cast<double>(above->bytes - below->bytes);
  return below->us + share * (above->us - below->us);
}

}  // namespace attnbench
