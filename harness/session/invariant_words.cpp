#include <fmt/format.h>

#include <utility>

#include "harness/session/invariants.h"

namespace attnbench {
namespace {

/// What a message says of each invariant. harness/judge/README.md has the details.
constexpr std::pair<const char*, const char*> kWords[] = {
    {"repeat", "the same launch again"},
    {"page_shuffle", "pages or cache rows in other places"},
    {"strides", "padded strides"},
    {"nhd_hnd", "the other order of token and head in a page"},
    {"lead_rows", "cu_seqlens that begin at 3"},
    {"packed_paged", "packed keys in pages of 16, paged keys packed"},
    {"batch_permutation", "the sequences in another order"},
    {"alone", "sequences as batches of one"},
    {"merge", "two launches of a part of the keys each, merged"},
    {"num_splits", "keys cut into other parts"},
    {"one_call", "one launch in place of several"},
    {"replay", "the same launch after lengths and inputs were replaced in place"},
    {"zero_d_out", "dO is zero"},
    {"twice_d_out", "dO is doubled"},
};

}  // namespace

std::string invariant_words(std::string_view name) {
  for (const auto& [known, words] : kWords) {
    if (name == known) return words;
  }
  return std::string(name);
}

std::string during_invariant(std::string_view name) {
  return fmt::format(" during invariant {} ({}), after a first launch that was right", name,
                     invariant_words(name));
}

std::vector<std::string> invariant_names() {
  std::vector<std::string> names;
  for (const auto& [name, words] : kWords) names.emplace_back(name);
  return names;
}

}  // namespace attnbench
