#include "harness/serving/trace_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace attnbench {
namespace {

constexpr int32_t kPlainBlock = 16;
constexpr std::size_t kMostIdsAhead = 1 << 20;  // hash ids of the requests that are read ahead

/// SplitMix64's output function, a bijection.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// The hash of a prefix that goes on with a piece of this id.
uint64_t longer_prefix(uint64_t prefix, uint64_t id) {
  return mixed(prefix * 0x9e3779b97f4a7c15ull + mixed(id + 1));
}

}  // namespace

TraceReader::TraceReader(const std::string& path, const TraceOptions& options)
    : TraceReader(path, LineReader(read_from_file(path)), options) {}

TraceReader::TraceReader(const std::string& path, LineReader lines, const TraceOptions& options)
    : path_(path), lines_(std::move(lines)), options_(options), ring_(kMostAhead) {
  if (!read_line())
    throw BadTraceError(fmt::format("{}: error: the file is empty; a trace is required", path_));
  try {
    if (line_.too_long) throw BadLine{0, "the first line is too long; a trace of text lines is required"};
    parser_.emplace(line_.text, options_.columns);
  } catch (const BadLine& bad) {
    throw BadTraceError(message(bad));
  }
  line_is_read_ = !parser_->has_header();
  const bool pieces = form() == TraceForm::kMooncake;
  if (options_.block_size == 0) options_.block_size = pieces ? kMooncakePiece : kPlainBlock;
  const int32_t size = options_.block_size;
  if (size < 1 || (pieces && kMooncakePiece % size != 0 && size % kMooncakePiece != 0)) {
    throw BadTraceError(fmt::format(
        "{}: error: blocks of {} tokens do not fit the trace, whose hashes are of {} tokens; give a "
        "block size that divides {} (16, 32, 64, 128, 256) or is a multiple of it",
        path_, size, kMooncakePiece, kMooncakePiece));
  }
}

std::string TraceReader::message(const BadLine& bad) const {
  return fmt::format("{}:{}:{}: error: {}{}", path_, line_.number, bad.offset + 1, bad.what,
                     line_.has_end ? "" : "; the file ends here without a newline and may be cut off");
}

std::string TraceReader::note() const {
  std::string text;
  if (!parser_->not_read().empty()) {
    text = fmt::format("columns not read: {} (what they add to the load is missing)",
                       fmt::join(parser_->not_read(), ", "));
  }
  if (skipped_ > 0) {
    text += fmt::format("{}{} line{} skipped; the first: {}", text.empty() ? "" : "; ", skipped_,
                        skipped_ == 1 ? "" : "s", first_skipped_);
  }
  return text;
}

/// The next line that is not blank. False at the end.
bool TraceReader::read_line() {
  while (lines_.next(line_)) {
    if (line_.too_long || line_.text.find_first_not_of(" \t") != line_.text.npos) return true;
  }
  return false;
}

bool TraceReader::operator()(Request& r) {
  while (!at_end_ && ring_size_ < kMostAhead && ring_ids_ < kMostIdsAhead) read_ahead();
  if (ring_size_ == 0 && !failed_.empty()) throw BadTraceError(failed_);
  if (ring_size_ == 0) return false;
  const Ahead& next = ahead(0);
  ring_begin_ = (ring_begin_ + 1) % kMostAhead;
  --ring_size_;
  ring_ids_ -= next.ids.size();
  if (!first_ns_) first_ns_ = next.line.time_ns;
  last_ns_ = next.line.time_ns;
  last_number_ = next.number;
  r.arrival_ns = next.line.time_ns - *first_ns_;
  if (options_.speed_up != 1)
    r.arrival_ns = static_cast<int64_t>(static_cast<double>(r.arrival_ns) / options_.speed_up);
  r.prompt_tokens = next.line.prompt_tokens;
  r.output_tokens = next.line.output_tokens;
  add_hashes(next.line, r);
  return true;
}

/// Reads a line and sorts it in.
void TraceReader::read_ahead() {
  at_end_ = !line_is_read_ && !read_line();
  line_is_read_ = false;
  if (at_end_) return;
  try {
    if (line_.too_long)
      throw BadLine{
          0, fmt::format("the line is longer than {} bytes; divide or remove it", lines_.buffer_bytes())};
    const TraceLine& line = parser_->parse(line_.text);
    check(line);
    insert(line);
  } catch (const BadLine& bad) {
    if (options_.skip_bad) {
      if (skipped_++ == 0) first_skipped_ = message(bad);
      return;
    }
    failed_ = fmt::format("{}; {} leaves out lines that are wrong", message(bad), options_.skip_option);
    at_end_ = true;
  }
}

void TraceReader::insert(const TraceLine& line) {
  Ahead& last = ahead(ring_size_);
  last.line = line;
  last.ids.assign(line.ids.begin(), line.ids.end());
  last.line.ids = last.ids;
  last.number = line_.number;
  ring_ids_ += last.ids.size();
  for (std::size_t i = ring_size_++; i > 0 && ahead(i - 1).line.time_ns > ahead(i).line.time_ns; --i)
    std::swap(ahead(i - 1), ahead(i));
}

void TraceReader::check(const TraceLine& line) const {
  if (first_ns_ && line.time_ns < last_ns_) {
    throw BadLine{
        line.time_offset,
        fmt::format("the request arrives {:.6g} s before that of line {}, and only {} lines are sorted at "
                    "a time; sort the file by time",
                    static_cast<double>(last_ns_ - line.time_ns) * 1e-9, last_number_, kMostAhead)};
  }
  const int64_t needed = int64_t{line.prompt_tokens} + line.output_tokens - 1;
  const int64_t size = options_.block_size, cached = options_.cache_tokens / size * size;
  if (options_.cache_tokens > 0 && needed > cached) {
    throw BadLine{line.prompt_offset,
                  fmt::format("the request needs {} tokens of the cache, which has {}; give it {} or more",
                              needed, cached, (needed + size - 1) / size * size)};
  }
  if (options_.prompt_tokens > 0 && line.prompt_tokens > options_.prompt_tokens) {
    throw BadLine{
        line.prompt_offset,
        fmt::format("the prompt has {} tokens, and a step computes at most {}; raise the token budget "
                    "or let prefills be divided",
                    line.prompt_tokens, options_.prompt_tokens)};
  }
}

/// Hashes of the prompt's full blocks. Each depends on all ids up to its end, so that an id at another place is
/// another block.
void TraceReader::add_hashes(const TraceLine& line, Request& r) {
  const int32_t size = options_.block_size;
  if (line.prefix_tokens > 0) {
    r.prefix_hashes.resize(static_cast<std::size_t>(line.prefix_tokens / size));
    const uint64_t prefix = longer_prefix(0, line.prefix_id);
    for (std::size_t i = 0; i < r.prefix_hashes.size(); ++i) r.prefix_hashes[i] = prefix + i;
    return;
  }
  const auto full = static_cast<std::size_t>(line.prompt_tokens / size);
  uint64_t prefix = 0;
  if (size >= kMooncakePiece) {
    const auto pieces = static_cast<std::size_t>(size / kMooncakePiece);
    for (std::size_t i = 0; i < line.ids.size() && r.prefix_hashes.size() < full; ++i) {
      prefix = longer_prefix(prefix, line.ids[i]);
      if ((i + 1) % pieces == 0) r.prefix_hashes.push_back(prefix);
    }
    return;
  }
  const auto blocks = static_cast<std::size_t>(kMooncakePiece / size);
  r.prefix_hashes.resize(std::min(full, line.ids.size() * blocks));
  uint64_t* hash = r.prefix_hashes.data();
  uint64_t* const end = hash + r.prefix_hashes.size();
  for (std::size_t i = 0; hash < end; ++i) {
    prefix = longer_prefix(prefix, line.ids[i]);
    const auto count = std::min(blocks, static_cast<std::size_t>(end - hash));
    for (std::size_t j = 0; j < count; ++j) hash[j] = prefix + j;
    hash += count;
  }
}

}  // namespace attnbench
