// Faults of kv_move: blocks copied, rows gathered.
#include <algorithm>
#include <utility>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

constexpr const char* kForked =
    "{op: kv_move, move: blocks, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, batch: q0s21_q0s40_q0s16}";
constexpr const char* kSwapped =
    "{op: kv_move, move: blocks, pools: two, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, batch: "
    "q0s21_q0s40_q0s16}";
constexpr const char* kGathered =
    "{op: kv_move, move: gather, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, batch: q0s21_q0s40_q0s16}";
constexpr const char* kDequantised =
    "{op: kv_move, move: gather, dtype: bf16, kv_dtype: e4m3, heads: 2, head_dim: 64, block_size: 16, batch: "
    "q0s21_q0s40_q0s16}";
constexpr const char* kFromBlocks =
    "{op: kv_move, move: gather, starts: blocks, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, batch: "
    "q0s85_q0s40_q0s16}";
constexpr const char* kFromAny =
    "{op: kv_move, move: gather, starts: any, dtype: bf16, heads: 2, head_dim: 64, block_size: 16, batch: "
    "q0s85_q0s40_q0s16}";
constexpr const char* kOneTensor =
    "{op: kv_move, move: gather, dtype: bf16, heads: 1, head_dim: 576, v_is_k_view: true, block_size: 16, batch: "
    "q0s21_q0s40_q0s16}";

Tamper::Fault with_move(std::function<void(Tamper&, KvMoveParams&)> change) {
  return changed<&OpParams::kv_move>(std::move(change));
}

/// Blocks are copied by other pairs.
Tamper::Fault with_pairs(std::function<void(const KvMoveParams&, std::vector<int64_t>&)> change) {
  return with_move([change = std::move(change)](Tamper& t, KvMoveParams& p) {
    if (p.block_pairs == nullptr) return;
    auto pairs = t.read<int64_t>(p.block_pairs, 2 * p.num_pairs);
    change(p, pairs);
    p.num_pairs = std::ssize(pairs) / 2;
    p.block_pairs = t.put(pairs);
  });
}

/// Gathers as the kernel does, from another table.
Tamper::Fault with_table(std::function<void(const KvMoveParams&, std::vector<int32_t>&)> change) {
  return with_move([change = std::move(change)](Tamper& t, KvMoveParams& p) {
    if (p.block_table == nullptr) return;
    auto table = t.read<int32_t>(p.block_table, p.batch * p.block_table_stride);
    change(p, table);
    p.block_table = t.put(table);
  });
}

/// The right launch; then bytes of the destination of V are what they were before.
KernelStatus without_v(Tamper& t, const OpParams& op) {
  const KvMoveParams& p = op.kv_move;
  const bool gather = (p.features & kGather) != 0;
  const int64_t bytes =
      (gather ? p.total_k * p.v_dst_stride_token : p.num_blocks_dst * p.v_dst_stride_block) *
      static_cast<int64_t>(dtype_size(gather ? p.dtype_out : p.dtype_v));
  const auto before = t.read<unsigned char>(p.v_dst, bytes);
  const KernelStatus s = t.launch(op);
  t.write(p.v_dst, before);
  return s;
}

/// The rest of the last block's rows follows those of the last sequence.
void whole_last_blocks(Tamper& t, const KvMoveParams& p) {
  if (p.block_table == nullptr || p.batch == 0) return;
  const auto cu = t.read<int32_t>(p.cu_seqlens, p.batch + 1);
  const auto table = t.read<int32_t>(p.block_table, p.batch * p.block_table_stride);
  const auto e = static_cast<int64_t>(dtype_size(p.dtype_k));
  for (int32_t b = 0; b < p.batch; ++b) {
    const int32_t len = cu[static_cast<std::size_t>(b) + 1] - cu[static_cast<std::size_t>(b)];
    const int32_t in_block = len % p.block_size;
    if (in_block == 0) continue;
    const int64_t block = table[static_cast<std::size_t>(b * p.block_table_stride + len / p.block_size)];
    const char* from = static_cast<const char*>(p.k_src) +
                       (block * p.k_src_stride_block + in_block * p.k_src_stride_token) * e;
    char* to = static_cast<char*>(p.k_dst) + cu[static_cast<std::size_t>(b) + 1] * p.k_dst_stride_token * e;
    t.write(to, t.read<unsigned char>(from, int64_t{p.head_dim} * e));
  }
}

std::vector<Fault> wrong_copies() {
  return {{"last_block_not_copied",
           "the last pair is left out",
           {kForked},
           with_pairs([](const KvMoveParams&, std::vector<int64_t>& pairs) {
             if (!pairs.empty()) pairs.resize(pairs.size() - 2);
           }),
           {"op: kv_move", "move: blocks"},
           "are not written"},
          {"pair_behind_the_last",
           "what stands behind the last pair is taken as another",
           {kForked},
           with_move([](Tamper&, KvMoveParams& p) { p.num_pairs += p.num_pairs > 0 ? 1 : 0; }),
           {},
           "rows change places"},
          {"copied_backwards",
           "destinations are copied to sources",
           {kForked},
           with_pairs([](const KvMoveParams&, std::vector<int64_t>& pairs) {
             for (std::size_t i = 0; i < pairs.size(); i += 2) std::swap(pairs[i], pairs[i + 1]);
           }),
           {},
           "rows change places"},
          {"neighbour_overwritten",
           "the first block goes to a place behind its destination, too",
           {kForked},
           with_pairs([](const KvMoveParams& p, std::vector<int64_t>& pairs) {
             if (pairs.empty()) return;
             const auto is_written = [&pairs](int64_t block) {
               for (std::size_t i = 1; i < pairs.size(); i += 2) {
                 if (pairs[i] == block) return true;
               }
               return false;
             };
             int64_t next = pairs[1];
             while (is_written(next) || next == pairs[0]) next = (next + 1) % p.num_blocks_dst;
             pairs.push_back(pairs[0]);
             pairs.push_back(next);
           }),
           {},
           "rows change places"},
          {"second_child_forgotten",
           "a source is copied once, to the first of its destinations",
           {kForked},
           with_pairs([](const KvMoveParams&, std::vector<int64_t>& pairs) {
             std::vector<int64_t> once;
             for (std::size_t i = 0; i < pairs.size(); i += 2) {
               bool seen = false;
               for (std::size_t j = 0; j < once.size(); j += 2) seen = seen || once[j] == pairs[i];
               if (!seen) once.insert(once.end(), {pairs[i], pairs[i + 1]});
             }
             pairs = once;
           }),
           {},
           "are not written"},
          {"values_not_copied", "V stays as it was", {kForked}, without_v, {}, "are not written"},
          {"swapped_within_a_pool",
           "the second pool is taken as the source as well",
           {kSwapped},
           with_move([](Tamper&, KvMoveParams& p) {
             p.k_src = p.k_dst;
             p.v_src = p.v_dst;
             p.num_blocks_src = p.num_blocks_dst;
             p.k_src_stride_block = p.k_dst_stride_block;
             p.v_src_stride_block = p.v_dst_stride_block;
           }),
           {"pools: two"},
           "rows change places"}};
}

std::vector<Fault> wrong_gathers() {
  return {{"gathered_in_pool_order",
           "blocks are taken as they lie in the pool, not by block_table",
           {kGathered},
           with_table([](const KvMoveParams& p, std::vector<int32_t>& table) {
             int32_t next = 0;
             for (int32_t& entry : table) {
               if (entry >= 0 && entry < p.num_blocks_src) entry = next++ % p.num_blocks_src;
             }
           }),
           {"move: gather"},
           "rows change places"},
          {"gathered_values_missing", "V is not gathered", {kGathered}, without_v, {}, "are not written"},
          {"whole_last_block_gathered",
           "the last block is copied whole, over the rows of the next sequence",
           {kGathered},
           afterwards<&OpParams::kv_move>(whole_last_blocks)},
          {"descale_ignored",
           "stored numbers are converted without their descale",
           {kDequantised},
           with_move([](Tamper& t, KvMoveParams& p) {
             const std::vector<float> one = {1.0f};
             if (p.k_descale != nullptr) p.k_descale = t.put(one);
             if (p.v_descale != nullptr) p.v_descale = t.put(one);
           }),
           {},
           "scales of K and V are not applied"},
          {"descale_of_keys_for_values",
           "values are multiplied by the descale of keys",
           {kDequantised},
           with_move([](Tamper&, KvMoveParams& p) { p.v_descale = p.k_descale; }),
           {},
           "V have the scale of the other tensor"},
          {"starts_ignored",
           "every sequence is gathered from its first row on",
           {kFromBlocks},
           with_move([](Tamper&, KvMoveParams& p) {
             p.features &= ~uint64_t{kSeqStarts};
             p.seq_starts = nullptr;
           }),
           {"starts: blocks"},
           "rows change places"},
          {"starts_rounded_to_blocks",
           "a sequence is gathered from the first row of the block that holds its start",
           {kFromAny},
           with_move([](Tamper& t, KvMoveParams& p) {
             if (p.seq_starts == nullptr) return;
             auto starts = t.read<int32_t>(p.seq_starts, p.batch);
             for (int32_t& start : starts) start -= start % p.block_size;
             p.seq_starts = t.put(starts);
           }),
           {"starts: any"},
           "rows change places"},
          {"half_of_a_latent_row",
           "512 of 576 channels are gathered",
           {kOneTensor},
           with_move([](Tamper&, KvMoveParams& p) { p.head_dim = std::min(p.head_dim, 512); }),
           {},
           "of K are not written"}};
}

}  // namespace

FaultClass move_faults() { return {"move", joined({wrong_copies(), wrong_gathers()})}; }

}  // namespace attnbench
