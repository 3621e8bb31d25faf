// Traces of requests: any text is read, or refused with a place in it. What is read is a request that a server takes,
// and a small buffer reads the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "harness/serving/trace_reader.h"
#include "tests/fuzz/require.h"

namespace {

using namespace attnbench;

ReadBytes read_bytes(const uint8_t* data, std::size_t size, std::size_t chunk) {
  return [=, at = std::size_t{0}](char* to, std::size_t most) mutable {
    const std::size_t n = std::min({most, chunk, size - at});
    if (n > 0) std::memcpy(to, data + at, n);
    at += n;
    return n;
  };
}

/// Lines in memory of their own, so that a sanitizer sees a look behind the end.
void parse_lines(const uint8_t* data, std::size_t size) {
  LineReader lines(read_bytes(data, size, size));
  std::unique_ptr<TraceParser> parser;
  for (TextLine line; lines.next(line);) {
    const std::unique_ptr<char[]> own(new char[line.text.size()]);
    std::copy(line.text.begin(), line.text.end(), own.get());
    const std::string_view text(own.get(), line.text.size());
    try {
      if (parser == nullptr) {
        parser = std::make_unique<TraceParser>(text);
        if (parser->has_header()) continue;
      }
      const TraceLine& t = parser->parse(text);
      fuzz::require(t.prompt_tokens >= 1 && t.output_tokens >= 1, "lengths are positive");
      fuzz::require(t.prefix_tokens >= 0 && t.prefix_tokens <= t.prompt_tokens,
                    "a prefix is a part of its prompt");
    } catch (const BadLine& bad) {
      fuzz::require(bad.offset <= text.size(), "the place of an error lies in the line");
      fuzz::require(!bad.what.empty(), "an error says something");
      if (parser == nullptr) return;
    }
  }
}

std::vector<Request> read_all(const uint8_t* data, std::size_t size, std::size_t buffer, std::size_t chunk,
                              const TraceOptions& options) {
  std::vector<Request> all;
  try {
    TraceReader reader("fuzz", LineReader(read_bytes(data, size, chunk), buffer), options);
    int64_t hashes = 0;
    for (Request r; r.prefix_hashes.clear(), reader(r);) {
      fuzz::require(r.prompt_tokens >= 1 && r.output_tokens >= 1, "lengths are positive");
      fuzz::require(r.arrival_ns >= (all.empty() ? 0 : all.back().arrival_ns), "time does not go back");
      fuzz::require(r.prefix_hashes.size() <= static_cast<std::size_t>(r.prompt_tokens / options.block_size),
                    "hashes are of full blocks");
      hashes += static_cast<int64_t>(r.prefix_hashes.size());
      if (hashes > (1 << 20)) break;
      all.push_back(r);
    }
  } catch (const Error& e) {
    fuzz::require(std::string(e.what()).find("fuzz:") == 0, "an error begins with the file");
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  parse_lines(data, size);
  const TraceOptions strict{.block_size = 64};
  const TraceOptions lenient{.block_size = 512, .skip_bad = true, .cache_tokens = 1 << 20};
  for (const TraceOptions& options : {strict, lenient}) {
    const std::vector<Request> all = read_all(data, size, size + 2, size + 1, options);
    // Lines that fit the large buffer alone would differ.
    std::size_t longest = 0, begin = 0;
    for (std::size_t i = 0; i <= size; ++i) {
      if (i < size && data[i] != '\n') continue;
      longest = std::max(longest, i + 1 - begin);
      begin = i + 1;
    }
    const std::vector<Request> again = read_all(data, size, longest + 2, 3, options);
    fuzz::require(all.size() == again.size(), "a small buffer reads as many requests");
    for (std::size_t i = 0; i < all.size(); ++i) {
      fuzz::require(all[i].arrival_ns == again[i].arrival_ns &&
                        all[i].prompt_tokens == again[i].prompt_tokens &&
                        all[i].prefix_hashes == again[i].prefix_hashes,
                    "a small buffer reads the same requests");
    }
  }
  return 0;
}
