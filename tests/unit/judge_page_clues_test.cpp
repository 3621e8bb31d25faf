// Kernels that read pages in place of others, and the clues that their outputs give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/clues_fixtures.h"

namespace attnbench {
namespace {

using test::case_of;
using test::clues;
using test::computed_by;
using test::Mistake;
using test::right_outputs;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

TEST(Clues, APageThatIsReadFromThePageBeforeIsNamed) {
  constexpr int kPage = 16;
  const auto before = [](int j, int end) {
    const int last = (end - 1) / kPage;
    return last > 0 && j / kPage == last ? j - kPage : j;
  };
  const auto in_sequence = [=](int j, int, SeqLen s) { return before(j, s.k); };
  const auto in_part_of_sequence = [=](int j, int, SeqLen s) {
    return s.k % kPage == 0 ? j : before(j, s.k);
  };
  const auto in_query = [=](int j, int end, SeqLen) { return before(j, end); };
  const auto in_part_of_query = [=](int j, int end, SeqLen) { return end % kPage == 0 ? j : before(j, end); };
  const auto right = [](int j, int, SeqLen) { return j; };
  const std::vector<Mistake> mistakes = {
      {.text = "K of the last page of a sequence is read from the page before; V is right",
       .k_token = in_sequence,
       .v_token = right},
      {.text = "V of the last page of a sequence is read from the page before; K is right",
       .v_token = in_sequence},
      {.text = "K and V of the last page of a sequence are read from the page before (",
       .k_token = in_sequence},
      {.text = "K of the last page of a sequence, if it is not full, is read from the page before",
       .k_token = in_part_of_sequence,
       .v_token = right},
      {.text = "K of the last page that a query sees is read from the page before; V is right",
       .k_token = in_query,
       .v_token = right},
      {.text =
           "K of the last page that a query sees, if it sees only a part of it, is read from the page before",
       .k_token = in_part_of_query,
       .v_token = right},
  };
  Case c = case_of(true);
  ASSERT_EQ(c.params.block_size, kPage);
  c.params.seqs = {{5, 9}, {7, 36}, {20, 40}, {1, 40}, {3, 48}};
  for (const Mistake& m : mistakes) {
    const auto found = clues(c, computed_by(m, c));
    EXPECT_THAT(found, Contains(StartsWith("looks like: " + m.text))) << m.text;
  }
  const Mistake of_one_length = {
      .k_token = [=](int j, int, SeqLen s) { return s.k == 36 ? before(j, s.k) : j; }};
  EXPECT_THAT(clues(c, computed_by(of_one_length, c)),
              Contains(StartsWith(
                  "looks like: K and V of the last page of a sequence are read from the page before, in a "
                  "part of the rows (perhaps: all ")));
  // O is that of a lost last key, too, but its LSE is not.
  Case two = c;
  two.params.block_size = 1;
  two.params.seqs = {{1, 2}};
  EXPECT_THAT(clues(two, computed_by({.k_token = [](int, int, SeqLen) { return 0; }}, two)),
              AllOf(Contains(StartsWith(
                        "looks like: K and V of the last page of a sequence are read from the page before")),
                    Each(Not(HasSubstr("left out")))));
  c.params.kv = KvSource::kPacked;
  EXPECT_THAT(clues(c, computed_by(mistakes.front(), c)), Each(Not(HasSubstr("page"))));
}

TEST(Clues, PagesInAnotherOrderAreNamed) {
  Case c = case_of(true);
  const auto page = static_cast<int>(c.params.block_size);
  c.params.seqs = {{5, 9}, {7, 36}, {20, 70}, {1, 128}, {3, 48}};
  const auto right = [](int j, int, SeqLen) { return j; };
  const auto shifted = [=](int j, int, SeqLen) { return j < page ? j : j - page; };
  const auto swapped = [=](int j, int, SeqLen s) {
    return (j / page | 1) < s.k / page ? (j / page ^ 1) * page + j % page : j;
  };
  const auto twice = [=](int j, int, SeqLen) { return (j / page & ~1) * page + j % page; };
  const std::vector<Mistake> mistakes = {
      {.text = "K and V of each page but the first are read from the page before", .k_token = shifted},
      {.text = "V of each page but the first is read from the page before; K is right",
       .k_token = right,
       .v_token = shifted},
      {.text = "K of pages 2 i and 2 i + 1 is read from each other's place; V is right",
       .k_token = swapped,
       .v_token = right},
      {.text = "K and V of page 2 i + 1 are read from page 2 i, which is read twice", .k_token = twice},
      {.text = "V of page 2 i + 1 is read from page 2 i, which is read twice; K is right",
       .k_token = right,
       .v_token = twice},
  };
  for (const Mistake& m : mistakes)
    EXPECT_THAT(clues(c, computed_by(m, c)), Contains(StartsWith("looks like: " + m.text))) << m.text;
  const Mistake harmless = {.k_token = swapped};
  Case full = c;
  full.params.causal = false;
  EXPECT_THAT(clues(full, computed_by(harmless, full)), IsEmpty())
      << "without a mask the order of keys is free";
}

TEST(Clues, ZeroedKeysThatCountAreNamed) {
  Case c = case_of(false);
  c.params.seqs = {{5, 9}, {7, 36}, {3, 70}, {1, 128}, {3, 48}};
  bool last_alone = false;
  const auto counted = [&](int tile) {
    HostOutputs h = right_outputs(c);
    const auto tokens = static_cast<int64_t>(h.lse.size()) / 4;
    for (const reference::RowId& id : reference::all_rows(problem_of(c))) {
      const SeqLen s = c.params.seqs[static_cast<std::size_t>(id.seq)];
      if (last_alone && id.pos + 1 < s.q) continue;
      const int64_t k = s.k, token = test::token_of(c, id);
      float& lse = h.lse[static_cast<std::size_t>(id.head * tokens + token)];
      const double sum = std::exp(lse), more = static_cast<double>((tile - k % tile) % tile);
      lse = static_cast<float>(std::log(sum + more));
      for (int64_t at = (token * 4 + id.head) * 32; at < (token * 4 + id.head + 1) * 32; ++at) {
        const double o = load_float(c.params.dtype, h.out.data(), at);
        store_float(c.params.dtype, h.out.data(), at, static_cast<float>(o * sum / (sum + more)));
      }
    }
    return clues(c, h);
  };
  ASSERT_EQ(c.params.block_size, 16);
  EXPECT_THAT(counted(16),
              Contains(StartsWith("looks like: the zeros that fill the last page of 16 count as keys")));
  EXPECT_THAT(counted(64),
              Contains(StartsWith("looks like: the zeros that fill the last tile of 64 count as keys")));
  EXPECT_THAT(counted(1), IsEmpty());
  // Under a mask rows that do not see the last key are right.
  c.params.causal = true;
  last_alone = true;
  EXPECT_THAT(counted(16),
              Contains(StartsWith("looks like: the zeros that fill the last page of 16 count as keys")));
}

}  // namespace
}  // namespace attnbench
