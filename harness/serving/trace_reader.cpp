#include "harness/serving/trace_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnbench {
namespace {

constexpr int32_t kPlainBlock = 16;

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
    : path_(path), lines_(std::move(lines)), options_(options) {
  if (!lines_.next(line_))
    throw BadTraceError(fmt::format("{}: error: the file is empty; a trace is required", path_));
  try {
    if (line_.too_long) throw BadLine{0, "the first line is too long; a trace of text lines is required"};
    parser_.emplace(line_.text);
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

std::string TraceReader::skipped_text() const {
  if (skipped_ == 0) return "";
  return fmt::format("{} line{} skipped; the first: {}", skipped_, skipped_ == 1 ? "" : "s", first_skipped_);
}

bool TraceReader::operator()(Request& r) {
  while (true) {
    if (!line_is_read_ && !lines_.next(line_)) return false;
    line_is_read_ = false;
    try {
      if (read(r)) return true;
    } catch (const BadLine& bad) {
      if (!options_.skip_bad)
        throw BadTraceError(
            fmt::format("{}; {} leaves out lines that are wrong", message(bad), options_.skip_option));
      if (skipped_++ == 0) first_skipped_ = message(bad);
      r.prefix_hashes.clear();
    }
  }
}

/// False for an empty line.
bool TraceReader::read(Request& r) {
  if (line_.too_long)
    throw BadLine{
        0, fmt::format("the line is longer than {} bytes; divide or remove it", lines_.buffer_bytes())};
  if (line_.text.empty()) return false;
  const TraceLine& line = parser_->parse(line_.text);
  check(line);
  if (!first_ns_) first_ns_ = line.time_ns;
  last_ns_ = line.time_ns;
  last_number_ = line_.number;
  r.arrival_ns = line.time_ns - *first_ns_;
  if (options_.speed_up != 1)
    r.arrival_ns = static_cast<int64_t>(static_cast<double>(r.arrival_ns) / options_.speed_up);
  r.prompt_tokens = line.prompt_tokens;
  r.output_tokens = line.output_tokens;
  add_hashes(line, r);
  return true;
}

void TraceReader::check(const TraceLine& line) const {
  if (first_ns_ && line.time_ns < last_ns_) {
    throw BadLine{line.time_offset,
                  fmt::format("the request arrives {:.6g} s before that of line {}; sort the lines by time",
                              static_cast<double>(last_ns_ - line.time_ns) * 1e-9, last_number_)};
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
