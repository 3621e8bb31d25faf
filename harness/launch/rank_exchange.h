// A launch of path dcp on several GPUs, without its attention: what one rank gives to the others, and when.
//
// Each rank starts with the queries of its share of the heads, and with its keys. It gathers the queries of all
// heads, attends its keys, and ends with O and LSE of its share of the heads, over all keys.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/device/ranks.h"
#include "harness/facts/skip_reason.h"
#include "harness/launch/merge_variance.h"
#include "harness/launch/rank_words.h"
#include "harness/tensors/guarded_buffer.h"

namespace attnbench {

/// Why the ranks of a case cannot be devices here; nullopt if they can, or need not.
std::optional<SkipReason> no_ranks(Device& device, const CaseParams& params);

class RankExchange {
 public:
  /// `whole`: the one call as each rank's workload has it, with `lead` unused rows before the first query.
  /// Throws OutOfMemory, DeviceError.
  RankExchange(RankTeam& team, const CaseParams& params, std::vector<AttentionParams> whole, int32_t lead);

  /// Sets where a rank's launch reads queries and leaves its state.
  void set_pointers(int32_t rank, AttentionParams& part) const;

  /// Enqueues all of a launch; `attend` enqueues the attention of one rank. To the stream of rank 0 it is one
  /// piece of work: it begins after what that stream holds, and ends when all ranks have ended. Only if it is
  /// `waited_for`, wait() may follow: marks between kernels, which it needs, keep the fused merge from starting early.
  void launch(const std::function<void(int32_t rank)>& attend, bool waited_for);
  /// Waits for such a launch. A rank that does not end it is named, and the process ends (RankStream::give_up).
  void wait();
  /// Enqueues the copies of all ranks' outputs to rank 0's `whole`.
  void take_outputs();
  /// Empties the caches of the other ranks as a timed launch does those of rank 0.
  void empty_caches(CacheMode cache);
  /// The times of the last launch, which has ended. Throws DeviceError if a rank did not come to a meeting.
  void read_times(Sample& sample);

  /// What the exchanges of a launch take alone, by measured times; nullopt if there are none.
  std::optional<double> alone_us(std::span<const Ceilings::Link> links) const;

  /// The ranks' states of the last launch. The caller sets `numerics`.
  PartialStates states() const;
  std::optional<std::string> memory_damage() const;

 private:
  enum class Phase { kCommunication, kAttention, kCorrection };
  struct Rank {
    GuardedBuffer own_queries;  ///< (heads of the rank, T, D)
    GuardedBuffer queries;      ///< (Hq, T, D)
    GuardedBuffer out, lse;     ///< state: (Hq, T, Dv), (Hq, T)
    GuardedBuffer sent_out;  ///< all_gather: the corrected state; all_to_all: received (ranks, heads, T, Dv)
    GuardedBuffer sent_lse;  ///< (ranks, Hq, T) or (ranks, heads, T)
    GuardedBuffer merged_lse;        ///< all_gather: (Hq, T)
    GuardedBuffer own_out, own_lse;  ///< outputs: (heads, T, Dv), (heads, T)
  };
  using Member = GuardedBuffer Rank::*;

  void make(std::size_t rank);
  void for_all(const std::function<void(std::size_t)>& call) const;
  void prepare();
  void gather_queries();
  void combine();
  void merge_received(const std::function<const void*(std::size_t, std::size_t)>& out,
                      const std::function<const float*(std::size_t, std::size_t)>& lse, bool meets);
  void end_phase(Phase phase, bool marked = true);
  RankTimes times_of(std::size_t rank, const MeetingWords& words) const;
  /// Throws DeviceError if a rank did not come to a meeting.
  MeetingWords read_words(std::size_t rank) const;
  std::vector<const void*> sent(Member member) const;
  std::vector<void*> received(Member member) const;
  const char* phase_words(std::size_t phase) const;

  RankTeam& team_;
  Combine combine_;
  std::vector<AttentionParams> whole_;
  int32_t lead_;
  int64_t rows_;          ///< queries T
  int32_t heads_;         ///< query heads of a rank
  Nccl* nccl_ = nullptr;  ///< null if the way to combine needs none
  std::vector<Rank> ranks_;
  RankWords words_;
  std::vector<Phase> phases_;  ///< of the launch, in order
};

}  // namespace attnbench
