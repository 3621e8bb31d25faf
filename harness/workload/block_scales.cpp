// Caches whose numbers have scales for blocks of channels.
#include "harness/cases/kv_rows.h"
#include "harness/workload/workload.h"

namespace attnbench {

std::vector<FillJob> Workload::cache_jobs(bool is_v, void* base) const {
  const CaseParams& p = item_.params;
  FillJob job = cache_job(is_v);
  job.base = base;
  job.owners = kv_owners_.as<RowOwner>();
  std::vector<FillJob> jobs = {job};
  if (is_v || p.kv_dtype != KvDType::kDsMla) return jobs;
  const DsMlaRow row = ds_mla_row(p);
  const auto add = [&](DType type, int64_t offset, int32_t dim) -> FillJob& {  // of the bytes of a row
    FillJob& part = jobs.emplace_back(job);
    for (int64_t* stride : {&part.stride_block, &part.stride_token, &part.stride_head})
      *stride /= static_cast<int64_t>(dtype_size(type));
    part.base = static_cast<char*>(base) + offset;
    part.dtype = type;
    part.head_dim = dim;
    return part;
  };
  add(DType::kFp32, row.latent, p.dim_v() / p.scale_block()).block_scales = true;
  add(DType::kBf16, row.latent + row.scales, p.k_tail()).first_channel = p.dim_v();
  return jobs;
}

void Workload::make_block_scales() {
  const CaseParams& p = item_.params;
  for (const bool is_v : {false, true}) {
    if (!has_scale_tensor(p, is_v)) continue;
    const KvStrides s = block_scale_strides(p, is_v, padded_);
    FillJob job = cache_job(is_v);
    job.dtype = p.type_of_block_scale();
    job.block_scales = true;
    job.head_dim = static_cast<int32_t>(block_scales(p, is_v));
    job.stride_block = s.block;
    job.stride_token = s.token;
    job.stride_head = s.head;
    job.owners = kv_owners_.as<RowOwner>();
    job.base =
        make(is_v ? kVBlockScales : kKBlockScales, Role::kInput, is_v ? "v_block_scale" : "k_block_scale",
             s.elements(job.num_rows) * static_cast<int64_t>(dtype_size(job.dtype)))
            .data();
    device_->fill(job);
    device_->synchronize();
  }
}

void Workload::set_block_scales(AttentionParams& a) const {
  const CaseParams& p = item_.params;
  if (p.scale_block() == 0) return;
  a.k_block_scale = data(kKBlockScales);
  a.v_block_scale = p.v_is_k_view ? a.k_block_scale : data(kVBlockScales);
  if (p.kv_dtype != KvDType::kDsMla || a.k == nullptr) return;
  const DsMlaRow row = ds_mla_row(p);
  const char* rows = static_cast<const char*>(a.k);
  a.k_block_scale = a.v_block_scale = rows + row.latent;
  a.k_tail = rows + row.latent + row.scales;
}

}  // namespace attnbench
