// The tensors of a kv_move. Its destination lies in the slots of the cache.
#include <algorithm>
#include <numeric>

#include "harness/cases/paths.h"
#include "harness/config/keys.h"
#include "harness/ops/tensors_ops.h"
#include "harness/tensors/descales.h"
#include "harness/tensors/shared_tensors.h"
#include "harness/tensors/shuffle.h"

namespace attnbench::ops::kv_move {
namespace {

KvMoveParams shape_of(const CaseParams& p, bool padded) {
  KvMoveParams m{};
  m.features = features_of(p);
  m.num_heads_kv = p.num_heads_kv;
  m.head_dim = p.head_dim;
  m.head_dim_v = p.dim_v();
  m.block_size = p.block_size;
  m.dtype_k = p.type_of_k();
  m.dtype_v = p.type_of_v();
  m.dtype_out = p.dtype;
  set_strides(kv_strides(p, false, padded), m.k_src_stride_block, m.k_src_stride_token, m.k_src_stride_head);
  set_strides(kv_strides(p, true, padded), m.v_src_stride_block, m.v_src_stride_token, m.v_src_stride_head);
  set_strides(cache_strides(p, false, padded), m.k_dst_stride_block, m.k_dst_stride_token,
              m.k_dst_stride_head);
  set_strides(cache_strides(p, true, padded), m.v_dst_stride_block, m.v_dst_stride_token,
              m.v_dst_stride_head);
  if (p.gathers()) {
    m.batch = static_cast<int32_t>(p.seqs.size());
    for (std::size_t b = 0; b < p.seqs.size(); ++b) m.total_k += p.seqs[b].k - p.start_of(b);
  } else {
    for (const SeqLen& s : p.seqs) m.num_pairs += move_copies(p, s.k);
  }
  return m;
}

OpParams shape(const Case& c, bool padded) { return op_params(shape_of(c.params, padded)); }

constexpr RowOwner kNoKey{-1, -1};
/// A block's destination is drawn by another stream than its source (shuffle.h).
constexpr uint32_t kDestinationStream = 0x11u << 24;

std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

int64_t blocks_of(const CaseParams& p, const SeqLen& s) {
  return (int64_t{s.k} + p.block_size - 1) / p.block_size;
}

/// Blocks of a pool that nothing may write, beside `used` ones.
int64_t spare_of(int64_t used) { return std::clamp<int64_t>(used / 16, 2, 64); }

/// Whose values rows without a key hold: those of sequences that do not exist.
RowOwner of_source(const CaseParams& p, int64_t row) {
  return {static_cast<int32_t>(p.seqs.size()), static_cast<int32_t>(row)};
}
RowOwner of_destination(const CaseParams& p, int64_t row) {
  return {static_cast<int32_t>(p.seqs.size()) + 1, static_cast<int32_t>(row)};
}

/// The blocks that a launch copies, in the order of sequences.
std::vector<int32_t> sources_of(const CaseParams& p, const WorkloadPlan& plan) {
  std::vector<int32_t> sources;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int64_t blocks = blocks_of(p, p.seqs[b]);
    for (int64_t i = 0; i < move_copies(p, p.seqs[b].k); ++i) {
      sources.push_back(plan.block_table[b * at(plan.block_table_stride) + at(std::min(i, blocks - 1))]);
    }
  }
  return sources;
}

void plan_blocks(const CaseParams& p, uint64_t seed, WorkloadPlan& plan) {
  const std::vector<int32_t> sources = sources_of(p, plan);
  const int64_t bs = p.block_size;
  std::vector<bool> in_use(at(plan.num_blocks), false);
  for (const int32_t block : sources) in_use[at(block)] = true;
  for (int64_t r = 0; r < std::ssize(plan.kv_owners); ++r) {
    if (in_use[at(r / bs)] && plan.kv_owners[at(r)].seq < 0) plan.kv_owners[at(r)] = of_source(p, r);
  }
  std::vector<int32_t> free;
  if (p.two_pools) {
    plan.num_blocks_dst = checked_int32(std::ssize(sources) + spare_of(std::ssize(sources)), "num_blocks");
    free.resize(at(plan.num_blocks_dst));
    std::iota(free.begin(), free.end(), 0);
    plan.source_owners = std::move(plan.kv_owners);
    plan.kv_owners.clear();
    for (int64_t r = 0; r < plan.num_blocks_dst * bs; ++r) plan.kv_owners.push_back(of_destination(p, r));
  } else {
    plan.num_blocks_dst = plan.num_blocks;
    for (int32_t block = 0; block < plan.num_blocks; ++block) {
      if (!in_use[at(block)]) free.push_back(block);
    }
  }
  if (p.page_layout != PageLayout::kContiguous) shuffle(free, seed, kDestinationStream);
  const std::vector<RowOwner> from = p.two_pools ? plan.source_owners : plan.kv_owners;
  plan.appended.assign(plan.kv_owners.size(), kNoKey);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    plan.block_pairs.push_back(sources[i]);
    plan.block_pairs.push_back(free[i]);
    for (int64_t r = 0; r < bs; ++r) {
      const int64_t to = free[i] * bs + r;
      plan.appended[at(to)] = from[at(sources[i] * bs + r)];
      plan.kv_owners[at(to)] = kNoKey;
      plan.slot_mapping.push_back(to);
    }
  }
  // What stands behind the last pair leads to a block that must stay.
  plan.stale_pair = {sources.empty() ? 0 : sources.front(), free.empty() ? 0 : free[sources.size()]};
}

void plan_gather(const CaseParams& p, int32_t lead_rows, WorkloadPlan& plan) {
  plan.source_owners = std::move(plan.kv_owners);
  plan.kv_owners.clear();
  const auto others = [&](int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      plan.kv_owners.push_back(of_destination(p, std::ssize(plan.kv_owners)));
      plan.appended.push_back(kNoKey);
    }
  };
  others(lead_rows);
  plan.cu_seqlens_k.push_back(lead_rows);
  const int64_t bs = p.block_size;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int32_t start = p.start_of(b);
    if (p.starts != Starts::kNone) plan.seq_starts.push_back(start);
    for (int32_t r = start; r < p.seqs[b].k; ++r) {
      const int64_t block = plan.block_table[b * at(plan.block_table_stride) + at(r / bs)];
      plan.slot_mapping.push_back(std::ssize(plan.kv_owners));
      plan.appended.push_back(plan.source_owners[at(block * bs + r % bs)]);
      plan.kv_owners.push_back(kNoKey);
    }
    plan.cu_seqlens_k.push_back(checked_int32(std::ssize(plan.kv_owners), "total_k"));
  }
  others(kTailRows);
}

/// The case with blocks for the copies in its pool.
CaseParams with_room_for_copies(CaseParams p) {
  if (p.gathers() || p.two_pools) return p;
  const int64_t shared = p.shared_tokens() / p.block_size;
  int64_t blocks = p.blocks ? p.blocks->num_blocks() : p.seqs.empty() ? 0 : shared, copies = 0;
  for (const SeqLen& s : p.seqs) {
    if (!p.blocks) blocks += blocks_of(p, s) - shared;
    copies += move_copies(p, s.k);
  }
  const int64_t needed = blocks + copies + spare_of(copies);
  if (needed > p.pool_blocks) p.pool_blocks = checked_int32(needed, "num_blocks");
  return p;
}

/// Blocks: rows of the sequences' blocks that hold no key get values, too, because blocks move whole. All
/// destinations hold poison before the launch. In a second pool all other rows hold values.
/// Gather: rows before and behind those that the launch writes hold values.
void plan(const Case& c, const LayoutVariant& variant, WorkloadPlan& plan) {
  plan_rows(with_room_for_copies(c.params), c.seed, variant, plan);
  if (c.params.gathers()) return plan_gather(c.params, variant.lead_rows, plan);
  plan_blocks(c.params, c.seed ^ variant.salt, plan);
}

void add(Workload& w) {
  const Case& c = w.item();
  const CaseParams& p = c.params;
  const WorkloadPlan& plan = w.plan();
  for (const bool is_v : {false, true}) {
    if (!is_v || !p.v_is_k_view) w.add_cache(is_v ? "v_dst" : "k_dst", is_v, Role::kState);
  }
  for (const bool is_v : {false, true}) {
    if ((is_v && p.v_is_k_view) || (!p.gathers() && !p.two_pools)) continue;
    const KvStrides s = kv_strides(p, is_v, w.padded());
    FillJob job = w.cache_job(is_v);
    job.dtype = p.type_of_kv(is_v);
    job.num_rows = std::ssize(plan.source_owners);
    job.block_size = s.rows;
    job.stride_block = s.block;
    job.stride_token = s.token;
    job.stride_head = s.head;
    Rows rows = token_rows(is_v ? SignsOf::kV : SignsOf::kQk, job.dtype, p.num_heads_kv, p.dim_of_kv(is_v));
    if (p.kv_layout == KvLayout::kHnd) rows.at.head_rows = p.block_size;
    w.add_rows(is_v ? "v_src" : "k_src", job, plan.source_owners,
               s.elements(job.num_rows) * static_cast<int64_t>(dtype_size(job.dtype)), rows,
               w.seen_of_cache(job, plan.source_owners));
  }
  if (!p.gathers()) {
    return w.add_input("block_pairs", plan.block_pairs, {plan.stale_pair.begin(), plan.stale_pair.end()});
  }
  w.add_cu_seqlens("cu_seqlens", plan.cu_seqlens_k);
  w.add_input("block_table", plan.block_table, {0});
  if (p.starts != Starts::kNone) w.add_input("seq_starts", plan.seq_starts, {0});
  if (p.kv_dtype == KvDType::kSame) return;
  w.add_input("k_descale", std::vector<float>{descale_of(c, Tensor::kK, 0, 0, 0, 0)});
  if (!p.v_is_k_view) w.add_input("v_descale", std::vector<float>{descale_of(c, Tensor::kV, 0, 0, 0, 0)});
}

void point(const Workload& w, OpParams& op) {
  KvMoveParams& m = op.kv_move;
  const CaseParams& p = w.item().params;
  const bool apart = p.gathers() || p.two_pools;
  m.num_blocks_src = w.plan().num_blocks;
  m.num_blocks_dst = w.plan().num_blocks_dst;
  m.k_dst = w.data("k_dst");
  m.v_dst = w.data("v_dst");
  m.k_src = apart ? w.data("k_src") : m.k_dst;
  m.v_src = apart ? w.data("v_src") : m.v_dst;
  m.block_pairs = w.data<int64_t>("block_pairs");
  if (!p.gathers()) return;
  m.block_table = w.data<int32_t>("block_table");
  m.block_table_stride = w.plan().block_table_stride;
  m.cu_seqlens = w.data<int32_t>("cu_seqlens");
  m.seq_starts = w.data<int32_t>("seq_starts");
  m.total_k = w.plan().cu_seqlens_k.back();
  m.k_descale = w.data<float>("k_descale");
  m.v_descale = w.data<float>("v_descale");
}

HostOutputs download(const Workload& w) {
  HostOutputs h;
  h.k_cache = w.download_cache("k_dst");
  h.v_cache = w.download_cache("v_dst");
  return h;
}

void spoil(BadLaunch how, OpParams& op) {
  KvMoveParams& p = op.kv_move;
  if (how == BadLaunch::kFeature) p.features |= kNoFeature;
  if (how == BadLaunch::kDType) p.dtype_k = p.dtype_k == DType::kInt8 ? DType::kE4m3 : DType::kInt8;
  if (how == BadLaunch::kHeadDim) p.head_dim = 0;
  if (how == BadLaunch::kHeads) p.num_heads_kv = 0;
  if (how == BadLaunch::kBlockSize) p.block_size = 0;
  if (how == BadLaunch::kPointer) p.k_src = nullptr;
}

std::vector<Written> written(const OpParams& op) {
  const KvMoveParams& p = op.kv_move;
  const bool gather = (p.features & kGather) != 0;
  const auto elements = [&](int64_t block, int64_t token) {
    return gather ? p.total_k * token : p.num_blocks_dst * block;
  };
  std::vector<Written> out = {
      {p.k_dst, elements(p.k_dst_stride_block, p.k_dst_stride_token), gather ? p.dtype_out : p.dtype_k}};
  if (!(p.features & kVIsK))
    out.push_back(
        {p.v_dst, elements(p.v_dst_stride_block, p.v_dst_stride_token), gather ? p.dtype_out : p.dtype_v});
  return out;
}

}  // namespace

const TensorsOps kTensorsOps = {shape, plan, add, nullptr, point, download, spoil, written};

}  // namespace attnbench::ops::kv_move
