#include "harness/tensors/workload.h"

#include <cmath>
#include <new>
#include <stdexcept>

#include "harness/cases/kv_rows.h"
#include "harness/device/ranks.h"
#include "harness/error.h"
#include "harness/ops/tensors_ops.h"
#include "harness/tensors/captured_fill.h"

namespace attnbench {

void HostOutputs::flip_infinities() {
  inf_empty_lse = true;
  for (float& x : lse) {
    if (std::isinf(x)) x = -x;
  }
}

FillJob token_job(const Case& c, Tensor tensor, DType dtype, int64_t rows, int32_t heads, int32_t dim,
                  const TokenStrides& strides) {
  FillJob job{};
  job.dtype = dtype;
  job.tensor = tensor;
  job.spec = {c.seed, c.params.data};
  job.num_rows = rows;
  job.block_size = rows > 0 ? rows : 1;
  job.stride_block = 0;
  job.stride_token = strides.token;
  job.stride_head = strides.head;
  job.num_heads = heads;
  job.head_dim = dim;
  return job;
}

Rows token_rows(SignsOf signs, DType dtype, int32_t heads, int32_t channels, int32_t group) {
  Rows rows{signs};
  rows.at.dtype = dtype;
  rows.at.dim = channels / numbers_per_element(dtype);
  rows.at.heads = heads;
  rows.at.group = group;
  rows.at.table_dim = channels;
  return rows;
}

Workload::Workload(Device& device, const Case& item, const LayoutVariant& variant, Values values,
                   Workload* before)
    : device_(&device),
      item_(item),
      variant_(variant),
      plan_(plan_workload(item, variant)),
      later_(values == Values::kLater),
      before_(before) {
  tensors_ops(item.params.op).add(*this);
  before_ = nullptr;
  if (!later_) compute_inputs();
  if (item.params.devices() == 1 || variant.rank > 0) return;
  std::string why_not;
  const RankTeam* team = device.rank_team(item.params.devices(), why_not);
  if (team == nullptr) throw DeviceError(why_not, false);
  for (int32_t r = 1; r < team->ranks(); ++r) {
    LayoutVariant other = variant;
    other.rank = r;
    others_.push_back(std::make_unique<Workload>(
        *team->devices[static_cast<std::size_t>(r)], item, other, values,
        before ? before->others_[static_cast<std::size_t>(r) - 1].get() : nullptr));
    in_place_ = in_place_ && others_.back()->in_place_;
  }
}

GuardedBuffer Workload::memory_for(const char* name, Role role, int64_t bytes, SeenPart seen) {
  if (before_ != nullptr) {
    for (NamedTensor& t : before_->tensors_) {
      if (t.memory.name() == name && t.memory.bytes() == bytes && t.memory.data() != nullptr)
        return std::move(t.memory);
    }
    in_place_ = false;
  }
  seen.at_page_begin = variant_.at_page_begin;
  return GuardedBuffer(*device_, name, bytes, role == Role::kInput ? Access::kReads : Access::kWrites, seen);
}

void Workload::fill_values() {
  if (!later_) return;
  later_ = false;
  for (const auto& other : others_) other->fill_values();
  for (const NamedTensor& t : tensors_) {
    if (t.fill) t.fill(t.memory.data());
  }
  device_->synchronize();
  compute_inputs();
}

void Workload::compute_inputs() {
  if (const auto compute = tensors_ops(item_.params.op).compute_inputs) compute(*this);
  remember_inputs();
}

void Workload::remember_inputs() {
  for (NamedTensor& t : tensors_) {
    if (t.role == Role::kInput && t.memory.data())
      t.digest = device_->digest(t.memory.data(), t.memory.bytes());
  }
}

void Workload::add(const char* name, Role role, int64_t bytes, const Rows& rows, NamedTensor::Fill fill,
                   const SeenPart& seen) {
  NamedTensor& t =
      tensors_.emplace_back(NamedTensor{memory_for(name, role, bytes, seen), role, rows, std::move(fill)});
  // No fill writes between the rows of padded tensors.
  if (bytes > 0 && (padded() || (later_ && t.fill))) device_->set_bytes(t.memory.data(), 0xff, bytes);
  if (t.fill && !later_) t.fill(t.memory.data());
}

void Workload::add_rows(const char* name, FillJob job, const std::vector<RowOwner>& owners, int64_t bytes,
                        const Rows& rows, const SeenPart& seen) {
  const auto fill_rows = [this, job, of_rows = &owners, bytes](void* to) mutable {
    if (of_rows->empty()) return;
    const GuardedBuffer on_device = GuardedBuffer::of(*device_, "row owners", *of_rows);
    job.owners = on_device.as<RowOwner>();
    job.base = to;
    fill(job, *of_rows, bytes);
    device_->synchronize();  // on_device goes out of scope
  };
  add(name, Role::kInput, bytes, rows, fill_rows, seen);
}

void Workload::add_tokens(const char* name, Tensor tensor, DType dtype, const std::vector<RowOwner>& owners,
                          int32_t heads, int32_t dim, const TokenStrides& strides, SignsOf signs,
                          int64_t tail) {
  const int64_t rows = std::ssize(owners),
                row_bytes = strides.token * static_cast<int64_t>(dtype_size(dtype));
  add_rows(name, token_job(item_, tensor, dtype, rows, heads, dim, strides), owners, rows * row_bytes,
           token_rows(signs, dtype, heads, dim, heads / item_.params.num_heads_kv),
           seen_of_cache(token_job(item_, tensor, dtype, rows, heads, dim, strides), owners, tail));
}

void Workload::fill(const FillJob& job, const std::vector<RowOwner>& owners, int64_t bytes) {
  if (item_.params.captured) return fill_captured(*device_, job, owners, bytes, *item_.params.captured);
  device_->fill(job);
}

const RowOwner* Workload::kv_owners() {
  if (!kv_owners_.data()) kv_owners_ = GuardedBuffer::of(*device_, "row owners", plan_.kv_owners);
  return kv_owners_.as<RowOwner>();
}

FillJob Workload::cache_job(bool is_v) const {
  const CaseParams& p = item_.params;
  const KvStrides s = cache_strides(p, is_v, padded());
  FillJob job = token_job(item_, is_v ? Tensor::kV : Tensor::kK, p.gathers() ? p.dtype : p.type_of_kv(is_v),
                          std::ssize(plan_.kv_owners), p.num_heads_kv,
                          p.dim_of_kv(is_v) - (is_v ? 0 : p.k_tail()), {s.token, s.head});
  if (s.rows > 0) job.block_size = s.rows;
  job.stride_block = s.block;
  return job;
}

void* Workload::cache_base(bool is_v, void* cache) const {
  const CaseParams& p = item_.params;
  const int64_t before = p.one_row && !is_v ? p.dim_v() * static_cast<int64_t>(dtype_size(p.type_of_v())) : 0;
  return cache == nullptr ? nullptr : static_cast<char*>(cache) + before;
}

std::vector<FillJob> Workload::cache_jobs(bool is_v, void* base) const {
  const CaseParams& p = item_.params;
  FillJob job = cache_job(is_v);
  job.base = base;
  job.owners = kv_owners_.as<RowOwner>();
  std::vector<FillJob> jobs = {job};
  if (is_v || p.kv_dtype != KvDType::kDsMla) return jobs;
  const DsMlaRow row = ds_mla_row(p);
  const auto add_part = [&](DType type, int64_t offset, int32_t dim) -> FillJob& {  // of the bytes of a row
    FillJob& part = jobs.emplace_back(job);
    for (int64_t* stride : {&part.stride_block, &part.stride_token, &part.stride_head})
      *stride /= static_cast<int64_t>(dtype_size(type));
    part.base = static_cast<char*>(base) + offset;
    part.dtype = type;
    part.head_dim = dim;
    return part;
  };
  add_part(DType::kFp32, row.latent, p.dim_v() / p.scale_block()).block_scales = true;
  add_part(DType::kBf16, row.latent + row.scales, p.k_tail()).first_channel = p.dim_v();
  return jobs;
}

Rows Workload::cache_rows(bool is_v) const {
  const CaseParams& p = item_.params;
  Rows rows =
      token_rows(is_v ? SignsOf::kV : SignsOf::kQk, cache_job(is_v).dtype, p.num_heads_kv, p.dim_of_kv(is_v));
  // Signs of rows that hold K and V never change (sign_plan.cpp).
  if (p.one_row) rows = token_rows(SignsOf::kNothing, p.type_of_k(), p.num_heads_kv, p.head_dim + p.dim_v());
  if (p.kv_dtype == KvDType::kDsMla)
    rows = token_rows(SignsOf::kRows, p.type_of_k(), p.num_heads_kv,
                      static_cast<int32_t>(row_elements(p, false)));
  if (p.paged() && !p.gathers() && p.kv_layout == KvLayout::kHnd) rows.at.head_rows = p.block_size;
  return rows;
}

bool Workload::has_holes() const {
  return std::ranges::any_of(
      tensors_, [&](const NamedTensor& t) { return !device_->holes_of(t.memory.data()).empty(); });
}

SeenPart Workload::seen_of_cache(const FillJob& job, const std::vector<RowOwner>& owners,
                                 int64_t tail) const {
  const auto size = static_cast<int64_t>(dtype_size(job.dtype));
  const bool blocks = job.stride_block > 0;
  const bool in_rows = !blocks || job.stride_block == job.block_size * job.stride_token;
  SeenPart seen{.behind = tail * job.stride_token * size,
                .row_bytes = in_rows ? job.stride_token * size : 0,
                .block_bytes = job.stride_block * size,
                .element_bytes = size};
  if (!device_->has_holes()) return seen;
  constexpr int64_t kLeastHole = 1 << 20, kTile = 256;  // a kernel may load a tile's other rows and drop them
  const int64_t unit = blocks ? job.block_size : 1, near = blocks ? 0 : kTile;
  const int64_t unit_bytes = (blocks ? job.stride_block : job.stride_token) * size;
  const int64_t rows = job.num_rows - tail;
  int64_t begin = 0;  // unit of the next hole
  const auto end_hole = [&](int64_t end) {
    const int64_t first = begin == 0 ? 0 : begin + near;
    if ((end - first) * unit_bytes >= kLeastHole)
      seen.holes.push_back({first * unit_bytes, end * unit_bytes});
  };
  for (int64_t r = 0; r < rows; ++r) {
    const auto is_used = [r](const std::vector<RowOwner>& of) {
      const int32_t seq = of.empty() ? -1 : of[static_cast<std::size_t>(r)].seq;
      return seq >= 0 && seq != kNoSequence;
    };
    if (!is_used(owners) && (&owners != &plan_.kv_owners || !is_used(plan_.appended))) continue;
    end_hole(r / unit - near);
    begin = r / unit + 1;
    r = begin * unit - 1;  // the rest of its block is there, too
  }
  end_hole(rows / unit);
  return seen;
}

void Workload::add_cache(const char* name, bool is_v, Role role) {
  kv_owners();
  const FillJob job = cache_job(is_v);
  const int64_t elements = job.stride_block > 0 ? job.num_rows / job.block_size * job.stride_block
                                                : job.num_rows * job.stride_token;
  const auto size = static_cast<int64_t>(dtype_size(job.dtype));
  const int64_t bytes = elements * size;
  const auto fill_all = [this, is_v, bytes](void* to) {
    const auto fill_rows = [&](bool of_v) {
      for (const FillJob& part : cache_jobs(of_v, cache_base(of_v, to))) fill(part, plan_.kv_owners, bytes);
    };
    fill_rows(is_v);
    if (item_.params.one_row && !is_v) fill_rows(true);
  };
  add(name, role, bytes, cache_rows(is_v), fill_all, seen_of_cache(job, plan_.kv_owners, kv_tail()));
}

void Workload::restore(const NamedTensor& t) {
  if (padded() && t.memory.bytes() > 0) device_->set_bytes(t.memory.data(), 0xff, t.memory.bytes());
  t.fill(t.memory.data());
  if (!signs_.v.empty() && t.rows.signs != SignsOf::kNothing) device_->change_signs(signed_tensor(t));
}

OpParams Workload::shape_params(const Case& item, bool padded) {
  return tensors_ops(item.params.op).shape(item, padded);
}

OpParams Workload::params() const {
  OpParams op = shape_params(item_, padded());
  tensors_ops(op.op).point(*this, op);
  return op;
}

HostOutputs Workload::download_outputs() const { return tensors_ops(item_.params.op).download(*this); }

const NamedTensor* Workload::find(std::string_view name) const {
  for (const NamedTensor& t : tensors_) {
    if (t.memory.name() == name) return &t;
  }
  return nullptr;
}

template <class T>
std::vector<T> Workload::download(std::string_view name) const {
  std::vector<T> host;
  const NamedTensor* t = find(name);
  if (t == nullptr || t->memory.bytes() == 0) return host;
  try {
    host.resize(static_cast<std::size_t>(t->memory.bytes()) / sizeof(T));
  } catch (const std::bad_alloc&) {
    throw TooLarge("not enough host memory for a copy of " + t->memory.name());
  }
  device_->download(host.data(), t->memory.data(), t->memory.bytes());
  take_signs_off(*t, host.data());
  return host;
}
HostBytes Workload::download_cache(std::string_view name) const {
  const NamedTensor* t = find(name);
  if (t == nullptr || t->memory.bytes() == 0) return {};
  const void* const from = t->memory.data();
  try {
    HostBytes host(t->memory.bytes(), device_->holes_of(from), from, 0);
    device_->download(host.data(), from, host.size());
    take_signs_off(*t, host.data(), host.holes());
    return host;
  } catch (const std::bad_alloc&) {
    throw TooLarge("not enough host memory for a copy of " + t->memory.name());
  }
}
template std::vector<unsigned char> Workload::download(std::string_view) const;
template std::vector<float> Workload::download(std::string_view) const;

void Workload::take_inputs_of(const Workload& other) {
  std::vector<unsigned char> host;
  for (const NamedTensor& t : tensors_) {
    const NamedTensor* from = other.find(t.memory.name());
    if (t.role != Role::kInput || from == nullptr || from->memory.bytes() == 0) continue;
    if (from->memory.bytes() > t.memory.bytes())
      throw std::logic_error("no room for other " + t.memory.name());
    if (from->fill) {  // a copy may be too large for the host
      from->fill(t.memory.data());
      device_->synchronize();
      continue;
    }
    host.resize(static_cast<std::size_t>(from->memory.bytes()));
    device_->download(host.data(), from->memory.data(), from->memory.bytes());
    device_->upload(t.memory.data(), host.data(), from->memory.bytes());
  }
  plan_.cu_seqlens_q = other.plan_.cu_seqlens_q;  // where outputs lie from now on
  plan_.seqused_q = other.plan_.seqused_q;
  remember_inputs();
}

void Workload::scale_input(std::string_view name, DType dtype, float factor) {
  std::vector<unsigned char> host = download(name);
  if (host.empty()) return;
  for (int64_t i = 0; i < std::ssize(host) / static_cast<int64_t>(dtype_size(dtype)); ++i)
    store_float(dtype, host.data(), i, factor * load_float(dtype, host.data(), i));
  device_->upload(data(name), host.data(), std::ssize(host));
  remember_inputs();
}

void Workload::reset_outputs(unsigned char byte) {
  for (const NamedTensor& t : tensors_) {
    if (t.memory.bytes() == 0) continue;
    if (t.role == Role::kOutput) device_->set_bytes(t.memory.data(), byte, t.memory.bytes());
    if (t.role == Role::kState) restore(t);
  }
  device_->synchronize();
}

}  // namespace attnbench
