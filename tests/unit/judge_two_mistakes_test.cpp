// Kernels that make two mistakes at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/mistakes.h"
#include "tests/unit/clues_fixtures.h"

namespace attnbench {
namespace {

using test::case_of;
using test::clues;
using test::kNoneStored;
using test::outputs_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const attnbench::Mistake& mistake(const std::vector<attnbench::Mistake>& of, std::string_view text) {
  const auto found = std::find_if(of.begin(), of.end(), [&](const auto& s) { return s.text == text; });
  if (found == of.end()) throw std::logic_error(std::string(text));
  return *found;
}

TEST(Clues, PairsOfAlibiMistakesLeaveMemoryAlone) {
  Case c = case_of(true);
  c.params.alibi = Alibi::kPerHead;
  reference::Problem halved = problem_of(c);
  for (double& slope : halved.alibi_slopes) slope /= 2;
  const auto found = clues(c, outputs_of(c, halved, CaseInputs(c, kNoneStored)));
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found, Each(Not(HasSubstr("looks like"))));
}

TEST(Clues, TwoMistakesAtOnceAreNamed) {
  const Case c = case_of(true);
  const CaseInputs inputs(c, kNoneStored);
  const reference::Problem right = problem_of(c);
  const auto mistakes = mistakes_of(c, right, inputs);
  const auto& heads = mistake(mistakes, "query head h reads KV head h % 2, not h / 2");
  const auto& diagonal =
      mistake(mistakes, "the causal mask shows one key too many: keys j <= diag + 1 are seen, not j <= diag");
  const auto& page = mistake(mistakes, "keys behind the last whole page or tile of 16 are left out");
  const auto& scale = mistake(mistakes, "log2(e) is missing in scores of exp2");
  const auto both = [&](const auto& one, const auto& other) {
    reference::Problem problem = right;
    one.change(problem);
    other.change(problem);
    const auto found = clues(c, outputs_of(c, problem, other.misreads ? *other.inputs : *one.inputs));
    EXPECT_THAT(found, Contains(AllOf(StartsWith("looks like: two mistakes: " + one.text + "; and " +
                                                 other.text + " (perhaps: all "),
                                      HasSubstr(" wrong rows tried match both"))));
  };
  both(diagonal, heads);
  both(scale, heads);
  both(scale, page);
  both(scale, diagonal);
  // Nothing is guessed about three.
  reference::Problem three = right;
  for (const auto* s : {&scale, &diagonal, &heads}) s->change(three);
  EXPECT_THAT(clues(c, outputs_of(c, three, *heads.inputs)), Each(Not(HasSubstr("looks like"))));
}

}  // namespace
}  // namespace attnbench
