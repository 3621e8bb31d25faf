#include "harness/results/exit_code.h"

#include <algorithm>
#include <array>

namespace attnbench {

int worse_exit_code(int a, int b) {
  constexpr std::array order = {130, 2, 5, 1, 3, 4, 6, 0};
  const auto rank = [&](int code) { return std::ranges::find(order, code) - order.begin(); };
  return rank(a) <= rank(b) ? a : b;
}

int exit_code_of(const std::vector<Record>& records) {
  int code = 0;
  bool ran = false;
  for (const Record& r : records) {
    ran = ran || r.status != Status::kSkip;
    if (r.status == Status::kFail || r.status == Status::kUndecided) code = worse_exit_code(code, 1);
    if (r.status == Status::kError || r.status == Status::kTimeout) code = worse_exit_code(code, 5);
    if (r.status == Status::kInvalidTime) code = worse_exit_code(code, 4);
  }
  return ran ? code : worse_exit_code(code, 6);
}

}  // namespace attnbench
