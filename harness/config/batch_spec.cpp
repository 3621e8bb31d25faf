#include "harness/config/batch_spec.h"

#include <fmt/format.h>

#include "harness/digest.h"

namespace attnbench {
namespace {

constexpr std::string_view kGrammar =
    "segments [COUNT]qLEN[k|m][sTOTAL[k|m]] joined by '_', or an axis of them, as in '{4..64..x2}q1s4k'";

/// Reads one spec from left to right; `at_` is the next character.
class Reader {
 public:
  explicit Reader(std::string_view spec) : spec_(spec) {}

  std::vector<SeqLen> batch() {
    if (spec_.empty()) fail("is empty");
    for (;;) {
      segment();
      if (at_ == spec_.size()) return std::move(seqs_);
      expect('_', "'_' (more sequences follow) or the end");
    }
  }

 private:
  void segment() {
    const std::size_t begin = begin_ = at_;
    const int64_t count = is_digit() ? number("count", kMaxBatch, false) : 1;
    expect('q', at_ == begin ? "a count or 'q'" : "'q'");
    const int64_t q = number("query length", kMaxSeqLen, true);
    int64_t k = q;
    if (peek() == 's' || peek() == 'S') {
      expect('s', "'s'");
      k = number("key length", kMaxSeqLen, true);
    }

    at_for_limits_ = begin;
    const int64_t batch = static_cast<int64_t>(seqs_.size()) + count;
    check_limit("number of sequences", batch, kMaxBatch);
    check_limit("total of query lengths", total_q_ += count * q, kMaxTotalTokens);
    check_limit("total of key lengths", total_k_ += count * k, kMaxTotalTokens);
    seqs_.insert(seqs_.end(), static_cast<std::size_t>(count),
                 {static_cast<int32_t>(q), static_cast<int32_t>(k)});
  }

  /// Digits, then k or m where `suffix` allows one.
  int64_t number(const char* what, int64_t limit, bool suffix) {
    const std::size_t begin = at_;
    if (!is_digit()) fail(fmt::format("a {} must follow, got {}", what, got()));
    int64_t value = 0;
    for (; is_digit(); ++at_) {
      // Saturates, so that any number of digits is read without overflow.
      if (value <= limit) value = value * 10 + (spec_[at_] - '0');
    }
    if (suffix) {
      if (peek() == 'K') fail("has 'K' after a number; did you mean 'k' (1024)?");
      if (peek() == 'M') fail("has 'M' after a number; did you mean 'm' (1024^2)?");
      const int64_t unit = peek() == 'k' ? 1024 : peek() == 'm' ? 1024 * 1024 : 1;
      if (unit != 1) ++at_;
      value *= unit;
    }
    at_for_limits_ = begin;
    check_limit(what, value, limit);
    return value;
  }

  void expect(char wanted, const char* in_words) {
    if (peek() == wanted) {
      ++at_;
      return;
    }
    std::string hint;
    if (peek() == wanted - 'a' + 'A') {
      hint = fmt::format("; did you mean '{}'?", wanted);
    } else if (peek() == ',' || peek() == ' ' || peek() == '+') {
      hint = "; did you mean '_'?";
    } else if (wanted == 'q' && at_ == spec_.size()) {
      hint = fmt::format("; did you mean 'q{}'?", spec_.substr(begin_));
    } else if (spec_.substr(at_, 2) == "kv" || spec_.substr(at_ == 0 ? 0 : at_ - 1, 2) == "kv") {
      hint = "; key lengths are written with 's', as in q1s1k";
    } else if (wanted == '_') {
      fail(fmt::format(
          "got {} at character {}, behind a length: a length is a number of tokens, alone or with k (1024) or m "
          "(1024^2), and '_' joins it to the next sequences, as in 4q1s2k_q512",
          got(), at_ + 1));
    }
    fail(fmt::format("needs {} at character {}, got {}{}", in_words, at_ + 1, got(), hint));
  }

  void check_limit(const char* what, int64_t value, int64_t limit) {
    if (value <= limit) return;
    at_ = at_for_limits_;
    fail(fmt::format("asks for too much: the {} may be {} at most", what, limit));
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw BatchSpecError(fmt::format("batch spec '{}' {}{} allowed: {}", shown_spec(spec_), problem,
                                     problem.ends_with('?') ? "" : ";", kGrammar),
                         at_);
  }

  char peek() const { return at_ < spec_.size() ? spec_[at_] : '\0'; }
  bool is_digit() const { return peek() >= '0' && peek() <= '9'; }

  std::string got() const {
    if (at_ == spec_.size()) return "the end";
    std::size_t end = at_ + 1;  // a whole UTF-8 character, so that the message is UTF-8
    while (end < spec_.size() && (static_cast<unsigned char>(spec_[end]) & 0xc0u) == 0x80u) ++end;
    return fmt::format("'{}'", spec_.substr(at_, end - at_));
  }

  std::string_view spec_;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;          ///< where the segment that is being read starts
  std::size_t at_for_limits_ = 0;  ///< the place that an error names if a value is too large
  std::vector<SeqLen> seqs_;
  int64_t total_q_ = 0;
  int64_t total_k_ = 0;
};

std::string length_text(int32_t n) {
  constexpr int32_t kilo = 1024;
  constexpr int32_t mega = 1024 * 1024;
  if (n != 0 && n % mega == 0) return fmt::format("{}m", n / mega);
  if (n != 0 && n % kilo == 0) return fmt::format("{}k", n / kilo);
  return fmt::format("{}", n);
}

constexpr std::size_t kLongestBatchInId = 48;

/// Tells batches apart in an id.
uint32_t lengths_digest(const std::vector<SeqLen>& seqs) {
  Digest digest;
  for (const SeqLen& s : seqs) {
    digest.add_bytes(s.q);
    digest.add_bytes(s.k);
  }
  return static_cast<uint32_t>(digest.value());
}

}  // namespace

std::string shown_spec(std::string_view spec) {
  return spec.size() <= 60 ? std::string(spec) : std::string(spec.substr(0, 57)) + "...";
}

std::vector<SeqLen> parse_batch_spec(std::string_view spec) { return Reader(spec).batch(); }

std::string format_batch_spec(const std::vector<SeqLen>& seqs) {
  if (seqs.empty()) return "0q0";
  std::string spec;
  for (std::size_t i = 0; i < seqs.size();) {
    std::size_t end = i + 1;
    while (end < seqs.size() && seqs[end] == seqs[i]) ++end;
    if (i > 0) spec += '_';
    if (end - i > 1) spec += fmt::format("{}", end - i);
    spec += 'q';
    spec += length_text(seqs[i].q);
    if (seqs[i].k != seqs[i].q) {
      spec += 's';
      spec += length_text(seqs[i].k);
    }
    i = end;
  }
  return spec;
}

std::string batch_label(const std::vector<SeqLen>& seqs) {
  std::string spec = format_batch_spec(seqs);
  if (spec.size() <= kLongestBatchInId) return spec;
  int64_t q = 0;
  int64_t k = 0;
  for (const SeqLen& s : seqs) {
    q += s.q;
    k += s.k;
  }
  return fmt::format("{}seqs-q{}-s{}-{:08x}", seqs.size(), q, k, lengths_digest(seqs));
}

}  // namespace attnbench
