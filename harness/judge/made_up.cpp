#include "harness/judge/made_up.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/judge/verify.h"

namespace attnbench {

std::string undecided_reason(const Workload& workload, const HostOutputs& outputs, const Numerics& numerics,
                             CheckMode mode, Verdict& verdict) {
  constexpr Numerics kUsual{DType::kFp32, DType::kFp32, 0x1p-22};
  verdict.tells_nothing = !verify(workload, outputs, kUsual, {mode, verdict.rows_seed}).accepts.empty();
  return fmt::format(
      "{} would pass, too: {}", fmt::join(verdict.accepts, " and "),
      verdict.tells_nothing
          ? "the values of the case cannot tell them from the right answer, whatever the arithmetic; judge the kernel "
            "by other data, other lengths or more rows"
          : fmt::format(
                "the declared arithmetic ({}) is too coarse for this case; declare what the kernel computes, or "
                "judge it by fewer keys, smaller scores or a finer type of O",
                types_text({numerics})));
}

}  // namespace attnbench
