// kv_move as a case: what its keys must agree on, and what it costs.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "harness/cases/paths.h"
#include "harness/cases/tally.h"
#include "harness/ops/case_ops.h"

namespace attnbench {

int32_t move_copies(const CaseParams& p, int32_t k) {
  const auto blocks = static_cast<int32_t>((int64_t{k} + p.block_size - 1) / p.block_size);
  return blocks > 0 && !p.two_pools ? blocks + 1 : blocks;
}

namespace ops::kv_move {
namespace {

void check(const CaseParams& p, const GivenKeys& given, const FailAt& fail) {
  if (given("kv") && p.kv != KvSource::kPaged) {
    fail("kv", "kv_move moves what a paged cache holds; write 'kv: paged' or drop the key");
  }
  check_widths(p, fail);
  check_no_block_scales(p, fail);
  refuse(
      fail,
      {{p.gathers() && p.kv_dtype != KvDType::kSame && p.kv_dtype != KvDType::kE4m3, "kv_dtype",
        "move: gather makes rows in dtype of rows in e4m3 or dtype, not of {}; write 'move: blocks', or take "
        "kv_dtype e4m3 or same"},
       {p.page_layout == PageLayout::kRepeated && p.type_of_k() == DType::kInt8, "kv_dtype",
        "page_layout: repeated is a block table of the case's own, with which it has no int8 keys; take "
        "kv_dtype e4m3 or same, or drop page_layout"}},
      kv_dtype_name(p.kv_dtype));
}

/// The blocks or rows that a kv_move reads, each once, and those that it writes.
struct Moved {
  int64_t read = 0, written = 0;
};

Moved moved_blocks(const CaseParams& p) {
  Moved m;
  std::unordered_map<int32_t, bool> given;
  const int64_t shared = p.shared_tokens() / p.block_size;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int64_t blocks = blocks_of(p.seqs[b].k, p.block_size);
    m.written += move_copies(p, p.seqs[b].k);
    m.read += b == 0 ? blocks : blocks - shared;
    for (int64_t i = 0; p.blocks && i < blocks; ++i)
      given[p.blocks->ids()[b][static_cast<std::size_t>(i)]] = true;
  }
  if (p.blocks) m.read = std::ssize(given);
  return m;
}

Moved gathered_rows(const CaseParams& p) {
  Moved m;
  std::unordered_map<int32_t, std::vector<std::pair<int64_t, int64_t>>> of_block;  // rows of given blocks
  std::vector<std::pair<int64_t, int64_t>> of_prefix;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int64_t first = p.start_of(b), last = p.seqs[b].k, shared = p.shared_tokens();
    m.written += last - first;
    if (shared > 0) of_prefix.emplace_back(std::min(first, shared), shared);
    m.read += last - std::max(first, shared);
    for (int64_t i = first / p.block_size; p.blocks && i * p.block_size < last; ++i) {
      of_block[p.blocks->ids()[b][static_cast<std::size_t>(i)]].emplace_back(
          std::max<int64_t>(0, first - i * p.block_size),
          std::min<int64_t>(p.block_size, last - i * p.block_size));
    }
  }
  if (p.blocks) m.read = 0;
  for (auto& [block, rows] : of_block) m.read += union_size(std::move(rows));
  m.read += union_size(std::move(of_prefix));
  return m;
}

/// Bytes of one row of K and V in dtype, all heads, as gather writes it.
double gathered_row_bytes(const CaseParams& p) {
  return element_bytes(p.dtype) * p.num_heads_kv * (p.head_dim + (p.v_is_k_view ? 0 : p.dim_v()));
}

/// Each block or row is read once, however often it is written. A pair has 16 bytes, an entry of a table 4.
void set_cost(const CaseParams& p, DrawSeed seed, CaseCost& c) {
  const Tally t = tally_of(p, seed);
  const double row = kv_row_bytes(p);
  const auto batch = static_cast<double>(p.seqs.size());
  if (p.gathers()) {
    const Moved m = gathered_rows(p);
    int64_t entries = 0;
    for (std::size_t b = 0; b < p.seqs.size(); ++b)
      entries += blocks_of(p.seqs[b].k, p.block_size) - p.start_of(b) / p.block_size;
    const double tables =
        4.0 * static_cast<double>(entries) + (p.starts == Starts::kNone ? 4.0 : 8.0) * batch;
    c.written = gathered_row_bytes(p) * static_cast<double>(m.written);
    c.bytes = row * static_cast<double>(m.read) + c.written + tables;
    c.formula = "kv_move: ((e_k*D+e_v*Dv)*Tread + e*(D+Dv)*T)*Hkv + 4*(blocks+B)";
    if (p.starts != Starts::kNone) c.formula += " + 4*B";
  } else {
    const Moved m = moved_blocks(p);
    const double block = row * p.block_size;
    c.written = block * static_cast<double>(m.written);
    c.bytes = block * static_cast<double>(m.read) + c.written + 16.0 * static_cast<double>(m.written);
    c.formula = "kv_move: (e_k*D+e_v*Dv)*Hkv*block_size*(blocks+pairs) + 16*pairs";
  }
  c.device_bytes = row * static_cast<double>(t.kv_rows) + c.written;
}

}  // namespace

const CaseOps kCaseOps = {check, set_cost};

}  // namespace ops::kv_move
}  // namespace attnbench
