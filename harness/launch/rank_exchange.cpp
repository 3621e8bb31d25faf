#include "harness/launch/rank_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "harness/launch/link_times.h"

namespace attnbench {
namespace {

int64_t bytes_of(DType t) { return static_cast<int64_t>(dtype_size(t)); }

/// Arithmetic of correct and merge (rank_rows.h): float, with expf.
constexpr Numerics kCombining = {DType::kFp32, DType::kFp32, 0x1p-21};

}  // namespace

std::optional<SkipReason> no_ranks(Device& device, const CaseParams& p) {
  if (p.devices() == 1) return std::nullopt;
  std::string why_not;
  RankTeam* team = device.rank_team(p.devices(), why_not);
  if (team != nullptr && p.dcp_combine != Combine::kFused && nccl_of(*team, why_not) == nullptr)
    team = nullptr;
  if (team != nullptr) return std::nullopt;
  return SkipReason{fmt::format("dcp_combine {}: {}", combine_name(p.dcp_combine), why_not)};
}

RankExchange::RankExchange(RankTeam& team, const CaseParams& p, std::vector<AttentionParams> whole,
                           int32_t lead)
    : team_(team),
      combine_(p.dcp_combine),
      whole_(std::move(whole)),
      lead_(lead),
      rows_(whole_.front().total_q - lead),
      heads_(p.num_heads_q / p.dcp_ranks),
      ranks_(whole_.size()),
      words_(team) {
  if (combine_ != Combine::kFused) {
    std::string why_not;
    nccl_ = nccl_of(team_, why_not);
    if (nccl_ == nullptr) throw DeviceError(why_not, false);
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) make(r);
}

void RankExchange::make(std::size_t r) {
  const AttentionParams& a = whole_[r];
  const int64_t own = heads_ * rows_, all = a.num_heads_q * rows_, ranks = std::ssize(ranks_);
  const int64_t q_row = a.head_dim * bytes_of(a.dtype_q), out_row = a.head_dim_v * bytes_of(a.dtype_out);
  constexpr int64_t kLse = sizeof(float);
  Device& device = *team_.devices[r];
  const auto buffer = [&](Member member, const char* name, int64_t bytes) {
    GuardedBuffer& b = ranks_[r].*member;
    b = GuardedBuffer(device, fmt::format("{} of rank {}", name, r), bytes);
    device.set_bytes(b.data(), 0xff, bytes);
  };
  buffer(&Rank::own_queries, "own queries", own * q_row);
  buffer(&Rank::queries, "gathered queries", all * q_row);
  buffer(&Rank::out, "partial state", all * out_row);
  buffer(&Rank::lse, "partial LSE", all * kLse);
  buffer(&Rank::own_out, "output", own * out_row);
  buffer(&Rank::own_lse, "output LSE", own * kLse);
  if (combine_ != Combine::kFused) {
    buffer(&Rank::sent_out, "exchanged states", all * out_row);
    buffer(&Rank::sent_lse, "exchanged LSEs", (combine_ == Combine::kAllGather ? ranks * all : all) * kLse);
  }
  if (combine_ == Combine::kAllGather) buffer(&Rank::merged_lse, "merged LSE", all * kLse);
}

void RankExchange::set_pointers(int32_t rank, AttentionParams& part) const {
  const Rank& r = ranks_[static_cast<std::size_t>(rank)];
  part.q = r.queries.data();
  part.out = r.out.data();
  part.lse = r.lse.as<float>();
}

void RankExchange::for_all(const std::function<void(std::size_t)>& call) const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) call(r);
}

std::vector<const void*> RankExchange::sent(Member member) const {
  std::vector<const void*> all;
  for (const Rank& r : ranks_) all.push_back((r.*member).data());
  return all;
}

std::vector<void*> RankExchange::received(Member member) const {
  std::vector<void*> all;
  for (const Rank& r : ranks_) all.push_back((r.*member).data());
  return all;
}

/// Before the common start: poison where nothing of this launch may be yet, and the queries as a layer before
/// would leave them, with heads outside and tokens inside. So what is gathered is (Hq, T, D) without a copy.
void RankExchange::prepare() {
  for_all([&](std::size_t r) {
    RankStream& s = *team_.streams[r];
    if (r > 0) s.wait_for(*team_.streams[0]);
    for (const Member member : {&Rank::own_queries, &Rank::queries, &Rank::out, &Rank::lse, &Rank::sent_out,
                                &Rank::sent_lse, &Rank::merged_lse, &Rank::own_out, &Rank::own_lse}) {
      s.poison((ranks_[r].*member).data(), (ranks_[r].*member).bytes());
    }
    const AttentionParams& a = whole_[r];
    const int64_t first = lead_ * a.q_stride_token + static_cast<int64_t>(r) * heads_ * a.q_stride_head;
    ReturnedTensor q{.dtype = a.dtype_q, .tokens = rows_, .heads = heads_, .channels = a.head_dim};
    q.from = {static_cast<char*>(const_cast<void*>(a.q)) + first * bytes_of(a.dtype_q), a.q_stride_token,
              a.q_stride_head, 1};
    q.to = {ranks_[r].own_queries.data(), a.head_dim, rows_ * a.head_dim, 1};
    s.copy(q);
  });
  for_all([&](std::size_t r) { team_.streams[r]->meet(words_.of(r)); });
}

void RankExchange::end_phase(Phase phase, bool marked) {
  phases_.push_back(phase);
  if (!marked) return;
  for_all([&](std::size_t r) { team_.streams[r]->mark(static_cast<int>(phases_.size())); });
}

void RankExchange::gather_queries() {
  const int64_t bytes = ranks_.front().own_queries.bytes();
  if (nccl_ != nullptr) {
    nccl_->all_gather({sent(&Rank::own_queries), received(&Rank::queries)}, bytes);
    return;
  }
  for_all([&](std::size_t r) {
    Gathering g{.bytes = bytes, .ranks = team_.ranks(), .to = ranks_[r].queries.data()};
    for_all([&](std::size_t other) { g.from[other] = ranks_[other].own_queries.data(); });
    team_.streams[r]->gather(g, words_.of(r));
  });
}

void RankExchange::merge_received(const std::function<const void*(std::size_t, std::size_t)>& out,
                                  const std::function<const float*(std::size_t, std::size_t)>& lse,
                                  bool meets) {
  for_all([&](std::size_t r) {
    Merging m{.states = team_.ranks(), .rows = heads_ * rows_, .dim = whole_[r].head_dim_v};
    m.dtype = whole_[r].dtype_out;
    for_all([&](std::size_t state) {
      m.out[state] = out(r, state);
      m.lse[state] = lse(r, state);
    });
    m.to = ranks_[r].own_out.data();
    m.to_lse = ranks_[r].own_lse.as<float>();
    const Meeting at = words_.of(r);
    team_.streams[r]->merge(m, meets ? &at : nullptr);
  });
}

void RankExchange::combine() {
  const AttentionParams& a = whole_.front();
  const int64_t own = heads_ * rows_;
  const int64_t out_bytes = own * a.head_dim_v * bytes_of(a.dtype_out),
                lse_bytes = own * int64_t{sizeof(float)};
  const auto share = [](const GuardedBuffer& b, std::size_t i, int64_t bytes) {
    return b.as<const char>() + static_cast<int64_t>(i) * bytes;
  };
  switch (combine_) {
    case Combine::kOneDevice:
      break;
    case Combine::kFused:
      merge_received([&](std::size_t r, std::size_t state) { return share(ranks_[state].out, r, out_bytes); },
                     [&](std::size_t r, std::size_t state) {
                       return reinterpret_cast<const float*>(share(ranks_[state].lse, r, lse_bytes));
                     },
                     true);
      return end_phase(Phase::kCorrection);
    case Combine::kAllToAll: {
      const auto out = sent(&Rank::out), lse = sent(&Rank::lse);
      const auto to_out = received(&Rank::sent_out), to_lse = received(&Rank::sent_lse);
      const Nccl::Buffers buffers[] = {{out, to_out}, {lse, to_lse}};
      const int64_t bytes[] = {out_bytes, lse_bytes};
      nccl_->all_to_all(buffers, bytes);
      end_phase(Phase::kCommunication);
      merge_received(
          [&](std::size_t r, std::size_t state) { return share(ranks_[r].sent_out, state, out_bytes); },
          [&](std::size_t r, std::size_t state) {
            return reinterpret_cast<const float*>(share(ranks_[r].sent_lse, state, lse_bytes));
          },
          false);
      return end_phase(Phase::kCorrection);
    }
    case Combine::kAllGather:
      nccl_->all_gather({sent(&Rank::lse), received(&Rank::sent_lse)}, ranks_.front().lse.bytes());
      end_phase(Phase::kCommunication);
      for_all([&](std::size_t r) {
        Correcting c{.out = ranks_[r].out.data(), .lse = ranks_[r].sent_lse.as<float>()};
        c.rank = static_cast<int32_t>(r);
        c.ranks = team_.ranks();
        c.rows = own * c.ranks;
        c.dim = a.head_dim_v;
        c.dtype = a.dtype_out;
        c.to = ranks_[r].sent_out.data();
        c.to_lse = ranks_[r].merged_lse.as<float>();
        team_.streams[r]->correct(c);
      });
      end_phase(Phase::kCorrection);
      nccl_->reduce_scatter({sent(&Rank::sent_out), received(&Rank::own_out)}, own * a.head_dim_v,
                            a.dtype_out);
      return end_phase(Phase::kCommunication);
  }
}

void RankExchange::launch(const std::function<void(int32_t)>& attend, bool waited_for) {
  phases_.clear();
  prepare();
  for_all([&](std::size_t r) { team_.streams[r]->mark(0); });
  gather_queries();
  end_phase(Phase::kCommunication);
  for_all([&](std::size_t r) {
    team_.streams[r]->make_current();
    attend(static_cast<int32_t>(r));
  });
  end_phase(Phase::kAttention, waited_for || combine_ != Combine::kFused);
  combine();
  for (std::size_t r = 1; r < ranks_.size(); ++r) team_.streams[0]->wait_for(*team_.streams[r]);
  team_.streams[0]->make_current();
}

const char* RankExchange::phase_words(std::size_t phase) const {
  if (phase == 0) return "gathering of queries";
  switch (phases_[phase]) {
    case Phase::kAttention:
      return "attention";
    case Phase::kCorrection:
      return "merge of states";
    case Phase::kCommunication:
      break;
  }
  return "exchange of states";
}

void RankExchange::wait() {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(team_.hang_s);
  const auto last = static_cast<int>(phases_.size());
  const auto ended = [&] {
    return std::all_of(team_.streams.begin(), team_.streams.end(),
                       [&](RankStream* s) { return s->reached(last); });
  };
  while (!ended() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (ended()) {
    for_all([&](std::size_t r) { read_words(r); });
    return team_.streams[0]->make_current();
  }
  std::vector<std::size_t> done;  // phases that each rank has ended
  for (RankStream* s : team_.streams) {
    std::size_t n = 0;
    while (n < phases_.size() && s->reached(static_cast<int>(n) + 1)) ++n;
    done.push_back(n);
  }
  const auto behind = std::min_element(done.begin(), done.end());
  const bool all = *behind == *std::max_element(done.begin(), done.end());
  const auto rank = static_cast<std::size_t>(behind - done.begin());
  team_.streams[0]->give_up(
      all ? fmt::format("no rank has ended its {} after {:g} s", phase_words(*behind), team_.hang_s)
          : fmt::format("rank {} ({}) has not ended its {} after {:g} s; the other ranks wait for it", rank,
                        team_.devices[rank]->info().name, phase_words(*behind), team_.hang_s));
}

void RankExchange::take_outputs() {
  const AttentionParams& a = whole_.front();
  Device& device = *team_.devices.front();
  for_all([&](std::size_t r) {
    const int64_t first_head = static_cast<int64_t>(r) * heads_;
    ReturnedTensor t{.dtype = a.dtype_out, .tokens = rows_, .heads = heads_, .channels = a.head_dim_v};
    t.from = {ranks_[r].own_out.data(), a.head_dim_v, rows_ * a.head_dim_v, 1};
    const int64_t at = lead_ * a.out_stride_token + first_head * a.out_stride_head;
    t.to = {static_cast<char*>(a.out) + at * bytes_of(a.dtype_out), a.out_stride_token, a.out_stride_head, 1};
    device.take_returned(t);
    const GuardedBuffer& lse = combine_ == Combine::kAllGather ? ranks_[r].merged_lse : ranks_[r].own_lse;
    const int64_t skipped = combine_ == Combine::kAllGather ? first_head * rows_ : 0;
    t.dtype = DType::kFp32;
    t.channels = 1;
    t.from = {lse.as<float>() + skipped, 1, rows_, 1};
    t.to = {a.lse + lead_ + first_head * a.lse_stride_head, 1, a.lse_stride_head, 1};
    device.take_returned(t);
  });
}

void RankExchange::empty_caches(CacheMode cache) {
  for (std::size_t r = 1; r < ranks_.size(); ++r) team_.streams[r]->empty_caches(cache);
  team_.streams[0]->make_current();
}

MeetingWords RankExchange::read_words(std::size_t r) const {
  MeetingWords words{};
  team_.devices[r]->download(&words, words_.buffer(r).data(), sizeof words);
  if (words.missing == 0) return words;
  throw DeviceError(fmt::format("rank {} did not come to a meeting: rank {} waited {} s for it",
                                words.missing - 1, r, kMeetingNs / 1'000'000'000),
                    true);
}

/// The end of the attention is not marked in a fused launch. The merge notes it by the GPU's clock, and so does
/// the meeting its end, just before the first mark.
RankTimes RankExchange::times_of(std::size_t r, const MeetingWords& words) const {
  RankStream& s = *team_.streams[r];
  const auto last = static_cast<int>(phases_.size());
  RankTimes t;
  t.total_us = s.us_between(0, last);
  if (combine_ == Combine::kFused) {
    t.communication_us = s.us_between(0, 1);
    t.correction_us = t.total_us - 1e-3 * static_cast<double>(words.merging_ns - words.started_ns);
    t.attention_us = t.total_us - t.communication_us - t.correction_us;
    return t;
  }
  for (int i = 0; i < last; ++i) {
    const Phase phase = phases_[static_cast<std::size_t>(i)];
    (phase == Phase::kAttention    ? t.attention_us
     : phase == Phase::kCorrection ? t.correction_us
                                   : t.communication_us) += s.us_between(i, i + 1);
  }
  return t;
}

void RankExchange::read_times(Sample& sample) {
  sample.us = sample.skew_us = 0;
  sample.watch.span_us = 0;  // it has what precedes the common start, too
  for_all([&](std::size_t r) {
    const MeetingWords words = read_words(r);
    sample.ranks.push_back(times_of(r, words));
    sample.us = std::max(sample.us, sample.ranks.back().total_us);
    sample.skew_us = std::max(sample.skew_us, 1e-3 * words.heard_ns);
  });
  team_.streams[0]->make_current();
}

std::optional<double> RankExchange::alone_us(std::span<const Ceilings::Link> links) const {
  const Rank& r = ranks_.front();
  const int64_t lse = r.lse.bytes(), out = r.out.bytes();
  std::vector<std::pair<const char*, int64_t>> all;
  all.emplace_back(nccl_ == nullptr ? kPeerReadLink : kAllGatherLink, r.queries.bytes());
  if (combine_ == Combine::kFused) all.emplace_back(kPeerReadLink, out + lse);
  if (combine_ == Combine::kAllToAll) all.emplace_back(kAllToAllLink, out + lse);
  if (combine_ == Combine::kAllGather) {
    all.emplace_back(kAllGatherLink, team_.ranks() * lse);
    all.emplace_back(kReduceScatterLink, out);
  }
  double sum = 0;
  for (const auto& [what, bytes] : all) {
    const auto us = link_us(links, what, team_.ranks(), bytes);
    if (!us) return std::nullopt;
    sum += *us;
  }
  return sum;
}

PartialStates RankExchange::states() const {
  const AttentionParams& a = whole_.front();
  PartialStates states;
  MergeStatesParams& m = states.layout;
  m.num_states = team_.ranks();
  m.num_heads = a.num_heads_q;
  m.head_dim = a.head_dim_v;
  m.dtype_partial = m.dtype_out = a.dtype_out;
  m.num_rows = rows_;
  m.partial_stride_token = a.head_dim_v;
  m.partial_stride_head = rows_ * a.head_dim_v;
  m.partial_stride_state = m.num_heads * m.partial_stride_head;
  m.lse_stride_token = 1;
  m.lse_stride_head = rows_;
  m.lse_stride_state = m.num_heads * rows_;
  states.merge_numerics = kCombining;
  states.keys = a.max_seqlen_k;
  // A reduce-scatter adds shares that are rounded to the type of O, and rounds each sum.
  states.rounded_sums = combine_ == Combine::kAllGather ? team_.ranks() : 0;
  for_all([&](std::size_t r) {
    const GuardedBuffer &out = ranks_[r].out, &lse = ranks_[r].lse;
    std::vector<unsigned char> o(static_cast<std::size_t>(out.bytes()));
    std::vector<float> l(static_cast<std::size_t>(lse.bytes()) / sizeof(float));
    team_.devices[r]->download(o.data(), out.data(), out.bytes());
    team_.devices[r]->download(l.data(), lse.data(), lse.bytes());
    states.out.insert(states.out.end(), o.begin(), o.end());
    states.lse.insert(states.lse.end(), l.begin(), l.end());
  });
  team_.streams[0]->make_current();
  return states;
}

std::optional<std::string> RankExchange::memory_damage() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (auto damage = words_.buffer(r).damage()) return damage;
  }
  for (const Rank& r : ranks_) {
    for (const Member member : {&Rank::own_queries, &Rank::queries, &Rank::out, &Rank::lse, &Rank::sent_out,
                                &Rank::sent_lse, &Rank::merged_lse, &Rank::own_out, &Rank::own_lse}) {
      if (auto damage = (r.*member).damage()) return damage;
    }
  }
  return std::nullopt;
}

}  // namespace attnbench
