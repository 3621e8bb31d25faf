// The tensors of a kv_move. Its destination lies in the slots of the cache.
#include "harness/workload/descales.h"
#include "harness/workload/workload.h"

namespace attnbench {

void Workload::make_kv_move() {
  const CaseParams& p = item_.params;
  make_caches();
  for (const bool is_v : {false, true}) {
    if ((is_v && p.v_is_k_view) || (!p.gathers() && !p.two_pools)) continue;
    const KvStrides s = kv_strides(p, is_v, padded_);
    FillJob job = cache_job(is_v);
    job.dtype = p.type_of_kv(is_v);
    job.num_rows = std::ssize(plan_.source_owners);
    job.block_size = s.rows;
    job.stride_block = s.block;
    job.stride_token = s.token;
    job.stride_head = s.head;
    const int64_t bytes = s.elements(job.num_rows) * static_cast<int64_t>(dtype_size(job.dtype));
    job.base = make(is_v ? kNewV : kNewK, Role::kInput, is_v ? "v_src" : "k_src", bytes).data();
    fill_rows(job, plan_.source_owners, bytes);
  }
  const auto input = [&](Slot slot, const char* name, auto host, auto... behind) {
    (host.push_back(behind), ...);
    buffers_[slot] = {GuardedBuffer::of(*device_, name, host), Role::kInput};
  };
  if (!p.gathers()) {
    input(kBlockPairs, "block_pairs", plan_.block_pairs, plan_.stale_pair[0], plan_.stale_pair[1]);
    return;
  }
  input(kCuSeqlensK, "cu_seqlens", plan_.cu_seqlens_k, plan_.cu_seqlens_k.back() + 1);
  input(kBlockTable, "block_table", plan_.block_table, 0);
  if (p.starts != Starts::kNone) input(kFirstRows, "seq_starts", plan_.seq_starts, 0);
  if (p.kv_dtype == KvDType::kSame) return;
  input(kKDescale, "k_descale", std::vector<float>{descale_of(item_, Tensor::kK, 0, 0, 0, 0)});
  if (!p.v_is_k_view)
    input(kVDescale, "v_descale", std::vector<float>{descale_of(item_, Tensor::kV, 0, 0, 0, 0)});
}

void Workload::set_move_pointers(KvMoveParams& m) const {
  const CaseParams& p = item_.params;
  const bool apart = p.gathers() || p.two_pools;
  m.num_blocks_src = plan_.num_blocks;
  m.num_blocks_dst = plan_.num_blocks_dst;
  m.k_src = data(apart ? kNewK : kK);
  m.v_src = data(apart ? kNewV : kV);
  m.k_dst = data(kK);
  m.v_dst = data(kV);
  m.block_pairs = data<int64_t>(kBlockPairs);
  if (!p.gathers()) return;
  m.block_table = data<int32_t>(kBlockTable);
  m.block_table_stride = plan_.block_table_stride;
  m.cu_seqlens = data<int32_t>(kCuSeqlensK);
  m.seq_starts = data<int32_t>(kFirstRows);
  m.total_k = plan_.cu_seqlens_k.back();
  m.k_descale = data<float>(kKDescale);
  m.v_descale = data<float>(kVDescale);
}

}  // namespace attnbench
