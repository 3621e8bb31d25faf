// Checks of the keys for kv_move, against each other.
#include <fmt/format.h>

#include "harness/cases/paths.h"

namespace attnbench {

int32_t move_copies(const CaseParams& p, int32_t k) {
  const auto blocks = static_cast<int32_t>((int64_t{k} + p.block_size - 1) / p.block_size);
  return blocks > 0 && !p.two_pools ? blocks + 1 : blocks;
}

void check_move(const CaseParams& p, const FailAt& fail) {
  if (p.op != Op::kKvMove) return;
  if (p.gathers() && p.kv_dtype != KvDType::kSame && p.kv_dtype != KvDType::kE4m3) {
    fail("kv_dtype",
         fmt::format(
             "move: gather makes rows in dtype of rows in e4m3 or dtype, not of {}; write 'move: blocks', "
             "or take kv_dtype e4m3 or same",
             kv_dtype_name(p.kv_dtype)));
  }
  if (p.page_layout == PageLayout::kRepeated && p.type_of_k() == DType::kInt8) {
    fail(
        "kv_dtype",
        "page_layout: repeated is a block table of the case's own, with which it has no int8 keys; take kv_dtype "
        "e4m3 or same, or drop page_layout");
  }
}

}  // namespace attnbench
