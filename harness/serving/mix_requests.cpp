#include "harness/serving/mix_requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/error.h"

namespace attnbench {
namespace {

constexpr uint64_t kSystemPrompt = 0;  // the stream of the system prompt that all turns begin with
constexpr int kBlockBits = 24;         // of a hash; the stream has the others
constexpr int32_t kLargestBlock = 1 << 20;

}  // namespace

MixRequests::MixRequests(const Mix& mix, double requests_per_s, int32_t block_size, uint64_t seed)
    : mix_(mix),
      block_size_(block_size),
      seed_(seed),
      rng_(seed),
      streams_(static_cast<std::size_t>(mix.prefixes.streams)) {
  if (block_size < 1 || block_size > kLargestBlock)
    throw Error(fmt::format("blocks of {} tokens; 1 to {} are required", block_size, kLargestBlock));
  if (requests_per_s != 0) arrivals_.emplace(requests_per_s, seed + 1);
}

bool MixRequests::operator()(Request& r) {
  const uint64_t seed = seed_ + (made_ >> 32);
  const auto index = static_cast<uint32_t>(made_++);
  r.arrival_ns = arrivals_ ? arrivals_->next_ns() : 0;
  r.prompt_tokens = static_cast<int32_t>(draw_length(mix_.prompt, seed, index, LengthOf::kQuery));
  r.output_tokens = static_cast<int32_t>(draw_length(mix_.output, seed, index, LengthOf::kKey));
  r.prefix_hashes.clear();
  switch (mix_.prefixes.kind) {
    case PrefixSharing::Kind::kNone:
      break;
    case PrefixSharing::Kind::kTurns:
      add_turn(r);
      break;
    case PrefixSharing::Kind::kSystemPrompts:
      add_system_prompt(r);
      break;
    case PrefixSharing::Kind::kAppend:
      add_append(r);
      break;
  }
  return true;
}

/// Hashes of the blocks that `tokens` leading tokens of the prompt fill, behind those that have a hash.
void MixRequests::add_blocks(Request& r, uint64_t stream, int64_t tokens) const {
  const auto blocks = static_cast<uint64_t>(tokens / block_size_);
  for (uint64_t i = r.prefix_hashes.size(); i < blocks; ++i)
    r.prefix_hashes.push_back(stream << kBlockBits | i);
}

/// A prompt that goes on takes the session whose last prompt is the longest that it can repeat. So lengths stay
/// those of the mix, and a session's prompts grow.
void MixRequests::add_turn(Request& r) {
  Stream* session = nullptr;
  if (draw_unit(rng_) < mix_.prefixes.follow_ups) {
    for (Stream& s : streams_) {
      if (s.tokens > 0 && s.tokens < r.prompt_tokens && (session == nullptr || s.tokens > session->tokens))
        session = &s;
    }
  }
  if (session == nullptr) {
    session = &streams_[oldest_];
    oldest_ = (oldest_ + 1) % streams_.size();
    session->id = ++last_id_;
  }
  session->tokens = r.prompt_tokens;
  add_blocks(r, kSystemPrompt, std::min(mix_.prefixes.system_tokens, r.prompt_tokens));
  add_blocks(r, session->id, r.prompt_tokens);
}

/// Longer prompts repeat more of their system prompt, because the part is all that is known.
void MixRequests::add_system_prompt(Request& r) {
  const auto part = static_cast<int64_t>(mix_.prefixes.share * r.prompt_tokens);
  const uint64_t id = random_stream() + 1;
  // Rounded to whole blocks, so that large blocks do not lower the share.
  add_blocks(r, id, std::min<int64_t>(part + block_size_ / 2, r.prompt_tokens));
}

void MixRequests::add_append(Request& r) {
  const auto [first, last] = std::pair(mix_.prefixes.first, mix_.prefixes.last);
  Stream& session = streams_[random_stream()];
  if (session.tokens == 0) {  // the first sessions are anywhere in their course
    session = {++last_id_, first + static_cast<int64_t>(rng_() % static_cast<uint64_t>(last - first))};
  }
  if (session.tokens + r.prompt_tokens > last) session = {++last_id_, first};
  session.tokens += r.prompt_tokens;
  r.prompt_tokens = static_cast<int32_t>(session.tokens);
  add_blocks(r, session.id, r.prompt_tokens);
}

}  // namespace attnbench
