#include "harness/config/batch_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

namespace attnbench {
namespace {

/// A part of a spec: text as it stands, or the items of a group in braces.
struct Piece {
  struct Item {
    std::string text;
    std::size_t offset, width;  ///< in the spec: where its characters stand
  };
  std::vector<Item> items;  ///< one for text as it stands
};

[[noreturn]] void fail(std::string_view spec, std::size_t at, const std::string& problem) {
  throw BatchSpecError(
      fmt::format("batch spec '{}' {}; allowed: in place of a number, numbers or ranges in braces, as in "
                  "{{1,4}}q1s{{1k..8k..x2}}",
                  shown_spec(spec), problem),
      at);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether `text` is digits, and k or m behind them.
bool is_number(std::string_view text) {
  if (text.ends_with('k') || text.ends_with('m')) text.remove_suffix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

/// Reads a number of the grammar into `value`. False: it is none, or larger than any limit.
bool read_number(std::string_view text, int64_t& value) {
  if (!is_number(text)) return false;
  const int64_t unit = text.ends_with('k') ? 1024 : text.ends_with('m') ? 1024 * 1024 : 1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && !__builtin_mul_overflow(value, unit, &value);
}

/// Adds the numbers of a range: LO..HI, LO..HI..STEP, or LO..HI..xFACTOR.
void add_range(std::string_view spec, std::string_view item, std::size_t at, Piece& group) {
  const std::size_t dots = item.find(".."), more = std::min(item.find("..", dots + 2), item.size());
  std::string_view step = more == item.size() ? "1" : item.substr(more + 2);
  const bool factor = step.starts_with('x');
  if (factor) step.remove_prefix(1);
  int64_t lo = 0, hi = 0, by = 0;
  if (!read_number(item.substr(0, dots), lo) || !read_number(item.substr(dots + 2, more - dots - 2), hi) ||
      !read_number(step, by) || lo > hi || by < (factor ? 2 : 1) || (factor && lo == 0)) {
    fail(
        spec, at,
        fmt::format(
            "has '{}' in braces at character {}, which is no range: LO..HI, with LO at most HI, stands for all "
            "whole numbers from one to the other, LO..HI..4 for steps of 4, LO..HI..x2 for doubled ones",
            shown_spec(item), at + 1));
  }
  for (int64_t n = lo; n <= hi; n = factor ? n * by : n + by) {
    if (group.items.size() >= kMaxBatches)
      fail(spec, at, fmt::format("stands for more than {} batches", kMaxBatches));
    group.items.push_back({std::to_string(n), at, item.size()});
    if (n > INT64_MAX / 2 / by) return;
  }
}

/// Whether a group from `begin` to `end` stands where a whole number may: behind nothing, '_', 'q' or 's',
/// and not before digits or another group.
bool is_place_of_number(std::string_view spec, std::size_t begin, std::size_t end) {
  const char before = begin == 0 ? '_' : spec[begin - 1];
  const char after = end == spec.size() ? '_' : spec[end];
  return (before == '_' || before == 'q' || before == 's') && !is_digit(after) && after != '{';
}

/// The group whose '{' stands at `begin`.
Piece group_at(std::string_view spec, std::size_t begin) {
  const std::size_t close = spec.find_first_of("{}", begin + 1);
  if (close == spec.npos) {
    fail(spec, begin, fmt::format("opens a brace at character {} and does not close it", begin + 1));
  }
  if (spec[close] == '{') {
    fail(spec, close, fmt::format("opens a brace inside another one at character {}", close + 1));
  }
  if (!is_place_of_number(spec, begin, close + 1)) {
    fail(spec, begin, fmt::format("has braces at character {}, where no whole number stands", begin + 1));
  }
  Piece group;
  for (std::size_t at = begin + 1;;) {
    const std::size_t end = std::min(spec.find(',', at), close);
    const std::string_view item = spec.substr(at, end - at);
    if (item.empty()) fail(spec, at, fmt::format("has an empty item in braces at character {}", at + 1));
    if (item.find("..") != item.npos) {
      add_range(spec, item, at, group);
    } else if (!is_number(item)) {
      fail(spec, at,
           fmt::format("has '{}' in braces at character {}, which is no number", shown_spec(item), at + 1));
    } else {
      group.items.push_back({std::string(item), at, item.size()});
    }
    if (end == close) return group;
    at = end + 1;
  }
}

std::vector<Piece> pieces_of(std::string_view spec) {
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < spec.size();) {
    const std::size_t brace = std::min(spec.find_first_of("{}", at), spec.size());
    if (brace > at) pieces.push_back({{{std::string(spec.substr(at, brace - at)), at, brace - at}}});
    if (brace == spec.size()) break;
    if (spec[brace] == '}') {
      fail(spec, brace, fmt::format("closes a brace at character {} that none opened", brace + 1));
    }
    pieces.push_back(group_at(spec, brace));
    at = spec.find('}', brace) + 1;
  }
  return pieces;
}

/// One choice of items: the spec that it makes, and where each of its characters stands in the whole.
struct Choice {
  std::string text;
  std::vector<std::size_t> offsets;
};

Choice choice_of(const std::vector<Piece>& pieces, const std::vector<std::size_t>& chosen) {
  Choice c;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece::Item& item = pieces[i].items[chosen[i]];
    c.text += item.text;
    for (std::size_t k = 0; k < item.text.size(); ++k)
      c.offsets.push_back(item.offset + std::min(k, item.width - 1));
  }
  return c;
}

std::vector<SeqLen> batch_of(const Choice& choice, std::string_view spec) {
  try {
    return parse_batch_spec(choice.text);
  } catch (const BatchSpecError& e) {
    const std::size_t at = e.offset < choice.offsets.size() ? choice.offsets[e.offset] : spec.size();
    throw BatchSpecError(fmt::format("of '{}': {}", shown_spec(spec), e.what()), at);
  }
}

}  // namespace

std::vector<std::vector<SeqLen>> parse_batch_product(std::string_view spec) {
  if (spec.find_first_of("{}") == spec.npos) return {parse_batch_spec(spec)};
  const std::vector<Piece> pieces = pieces_of(spec);
  std::size_t count = 1;
  for (const Piece& p : pieces) {
    count *= p.items.size();  // no overflow: no factor comes near 2^32
    if (count > kMaxBatches) fail(spec, 0, fmt::format("stands for more than {} batches", kMaxBatches));
  }
  if (count * spec.size() > kMaxProductCharacters) {
    fail(spec, 0,
         fmt::format("stands for {} batches of up to {} characters, {} in all at most", count, spec.size(),
                     kMaxProductCharacters));
  }
  std::vector<std::vector<SeqLen>> batches;
  std::vector<std::size_t> chosen(pieces.size(), 0);
  std::size_t sequences = 0;
  while (batches.size() < count) {
    batches.push_back(batch_of(choice_of(pieces, chosen), spec));
    if ((sequences += batches.back().size()) > kMaxProductSequences) {
      fail(spec, 0, fmt::format("stands for batches of more than {} sequences in all", kMaxProductSequences));
    }
    for (std::size_t i = pieces.size(); i-- > 0;) {
      if (++chosen[i] < pieces[i].items.size()) break;
      chosen[i] = 0;
    }
  }
  return batches;
}

}  // namespace attnbench
