#include "harness/launch/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/cases/paths.h"
#include "harness/gigabytes.h"
#include "harness/launch/merge_variance.h"
#include "harness/launch/numerics_bounds.h"
#include "harness/launch/served.h"
#include "harness/ops/op.h"
#include "harness/tensors/plan.h"

namespace attnbench {
namespace {

/// Says where a number comes from that a kernel stumbled over, as an index that Python refuses; empty if not from junk.
std::string junk_note(const std::string& message) {
  const std::string junk = std::to_string(kJunkBlocks[0]);
  if (message.find(junk) == message.npos) return "";
  return "; " + junk +
         " is junk that must not be read, as in entries of block_table behind a sequence's last block";
}

void check(const Kernel& kernel, KernelStatus status, const KernelMessage& message, const char* step) {
  if (status == KernelStatus::kOk) return;
  const std::string text = message.text[0] ? message.text : "no message";
  throw KernelError(std::string(kernel.name) + ": " + step + " failed: " + text + junk_note(text));
}

}  // namespace

void expect_ok(const Kernel& kernel, const char* step,
               const std::function<KernelStatus(KernelMessage*)>& call) {
  KernelMessage message{};
  // A launch may be timed: what takes longer to look at is looked at by who asked for it.
  const KernelStatus status = guarded(
      kernel, step, [&] { return call(&message); }, StateBefore::Scope::kFloat);
  check(kernel, status, message, step);
}

std::vector<const Kernel*> select_kernels(KernelTable table, Op op, DeviceKind device,
                                          const std::vector<std::string>& names) {
  std::vector<const Kernel*> out;
  for (const Kernel* k : table) {
    const bool named = names.empty() || std::find(names.begin(), names.end(), k->name) != names.end();
    if (k->op == op && k->device == device && named) out.push_back(k);
  }
  return out;
}

namespace {

/// "; it takes fp16, fp32 (--set dtype=fp16)", if `text` refuses one of the types, or of the forms of the cache, and the
/// kernel takes others.
std::string alternatives(const Kernel& kernel, std::string_view text) {
  constexpr std::pair<const char*, uint64_t> kKeys[] = {{"dtype", kBf16 | kFp16 | kFp32},
                                                        {"kv", kPackedKv | kPagedKv | kContiguousKv}};
  if (!traits_of(kernel.op).forward()) return "";
  for (const auto& [key, values] : kKeys) {
    std::vector<const char*> taken;
    bool refused = false;
    for (const FeatureName& f : kFeatureNames) {
      if ((f.bit & values) == 0) continue;
      refused = refused || text == fmt::format("{}: {} is not supported", kernel.name, f.name);
      if (kernel.features & f.bit) taken.push_back(f.name);
    }
    if (refused && !taken.empty())
      return fmt::format("; it takes {} (--set {}={})", fmt::join(taken, ", "), key, taken.front());
  }
  return "";
}

std::optional<SkipReason> refused(const Kernel& kernel, const Device& device, const OpParams& params) {
  const LaunchContext context = device.launch_context();
  KernelMessage message{};
  const auto asked = [&] { return kernel.supports(&params, &context, &message); };
  const bool takes = check_features(kernel, params, &message) == KernelStatus::kOk &&
                     guarded(kernel, "supports", asked) == KernelStatus::kOk;
  if (takes) return std::nullopt;
  return SkipReason{message.text + alternatives(kernel, message.text)};
}

/// The kernel that merges the states of `kernel`: the one with its name, else the first that takes them, else
/// null.
const Kernel* merge_kernel(const Kernel& kernel, KernelTable table, const Device& device,
                           const OpParams& merge) {
  std::vector<const Kernel*> mergers = select_kernels(table, Op::kMergeStates, device.info().kind, {});
  std::stable_partition(mergers.begin(), mergers.end(),
                        [&](const Kernel* k) { return std::string_view(k->name) == kernel.name; });
  const auto takes = [&](const Kernel* k) { return !refused(*k, device, merge); };
  const auto found = std::find_if(mergers.begin(), mergers.end(), takes);
  return found == mergers.end() ? nullptr : *found;
}

/// What the kernel declares for a launch. Throws KernelError, also if that is out of bounds.
Numerics declared(const Kernel& kernel, const OpParams& params) {
  const Numerics n = guarded(kernel, "numerics", [&] { return kernel.numerics(&params); });
  if (const auto why = out_of_bounds(n))
    throw KernelError(
        fmt::format("{}: what it declares in numerics is out of bounds: {}", kernel.name, *why));
  if (n.input_roundoff > 0 && !(traits_of(params.op).forward() && (features_of(params) & kFp32) != 0)) {
    throw KernelError(fmt::format(
        "{}: it declares input_roundoff {}, which is for attention in fp32 only: 0 required in other launches",
        kernel.name, n.input_roundoff));
  }
  return n;
}

bool is_one_call(const CaseParams& p) { return !p.does().forward() || p.path == Path::kOneCall; }

}  // namespace

std::optional<SkipReason> other_abi(const Kernel& kernel) {
  if (kernel.abi_version == kKernelAbiVersion) return std::nullopt;
  return SkipReason{fmt::format("{}: built for kernel ABI {}, this program has {}", kernel.name,
                                kernel.abi_version, kKernelAbiVersion)};
}

std::optional<SkipReason> refusal(const Kernel& kernel, KernelTable table, Device& device, const Case& item,
                                  bool padded_strides) {
  if (auto why = other_abi(kernel)) return why;
  if (auto why = not_served(kernel, item, padded_strides)) return why;
  const OpParams whole = Workload::shape_params(item, padded_strides);
  if (is_one_call(item.params)) return refused(kernel, device, whole);
  if ((kernel.flags & (kReturnsOutputs | kNoLse | kInfEmptyLse)) != 0) {
    return SkipReason{fmt::format("{}: path {} needs a kernel that writes O and LSE as the contract says",
                                  kernel.name, path_name(item.params.path))};
  }
  for (const Part& part : parts_of(item.params, whole.attention, 0)) {
    if (const auto why = refused(kernel, device, op_params(part.params)))
      return SkipReason{fmt::format("{} ({} of path {})", why->text, part.name, path_name(item.params.path))};
  }
  if (item.params.devices() > 1) return no_ranks(device, item.params);
  const int32_t states = merged_states(item.params);
  if (states > 0 && !merge_kernel(kernel, table, device, op_params(merge_of(whole.attention, states, 0)))) {
    return SkipReason{fmt::format("path {}: no merge_states kernel of {} takes its {} states",
                                  path_name(item.params.path), device.info().name, states)};
  }
  return std::nullopt;
}

LayoutVariant layout_for(const Kernel& kernel, LayoutVariant variant) {
  variant.finite_padding = (kernel.flags & kFinitePadding) != 0;
  if (traits_of(kernel.op).gradients)
    variant.forward = select_kernels(builtin_kernels(), Op::kAttention, kernel.device, {}).at(0);
  return variant;
}

Launcher::Launcher(const Kernel& kernel, KernelTable table, Device& device, const Workload& workload,
                   const Launcher* like, unsigned char workspace_byte)
    : kernel_(&kernel), device_(&device), params_(workload.params()), workspace_byte_(workspace_byte) {
  if (is_one_call(workload.item().params)) {
    add_step(kernel, params_, device);
  } else if (workload.item().params.devices() > 1) {
    add_ranks(workload);
  } else {
    add_parts(table, workload);
  }
  if (!traits_of(params_.op).copies()) numerics_ = like ? like->numerics_ : declared(kernel, params_);
  if (!partial_out_.data()) return;
  const bool known = like && like->partial_out_.data();
  merge_numerics_ = known ? like->merge_numerics_ : declared(*steps_.back().kernel, steps_.back().params);
}

void Launcher::add_step(const Kernel& kernel, const OpParams& params, Device& device) {
  Step& step = steps_.emplace_back(Step{&kernel, &device, params, device.launch_context(), {}});
  const auto wanted = [&] { return kernel.workspace_bytes(&params, &step.context); };
  const std::size_t bytes = kernel.workspace_bytes ? guarded(kernel, "workspace_bytes", wanted) : 0;
  const int64_t most = device.info().memory_bytes;
  if (most > 0 && bytes > static_cast<std::size_t>(most)) {
    throw KernelError(fmt::format("{}: workspace_bytes wants {}; {} has {} in all", kernel.name,
                                  gigabytes(static_cast<double>(bytes)), device.info().name,
                                  gigabytes(static_cast<double>(most))));
  }
  if (bytes > 0) {
    try {
      step.workspace = GuardedBuffer(device, "workspace", static_cast<int64_t>(bytes), Access::kWrites,
                                     {.alignment = kWorkspaceAlignment});
    } catch (const OutOfMemory& e) {
      throw NoWorkspace(e.what(), bytes);
    }
    // A kernel must not rely on the content of a new workspace.
    device.set_bytes(step.workspace.data(), workspace_byte_, step.workspace.bytes());
    device.synchronize();
    step.context.workspace = step.workspace.data();
    step.context.workspace_bytes = bytes;
  }
  if (kernel.plan) {
    const auto begin = std::chrono::steady_clock::now();
    KernelMessage message{};
    const KernelStatus status = guarded(
        kernel, "plan", [&] { return kernel.plan(&step.params, &step.context, &message); },
        StateBefore::Scope::kTeam);
    if (status == KernelStatus::kUnsupported) throw PlanRefused(message.text);
    check(kernel, status, message, "plan");
    const KernelHost* host = device.kernel_host();
    plan_us_ +=
        host != nullptr
            ? host->last_us()
            : std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
}

const int32_t* Launcher::keep(const char* name, const std::vector<int32_t>& host, Device& device) {
  GuardedBuffer buffer = GuardedBuffer::of(device, name, host, Access::kReads);
  const uint64_t digest = device.digest(buffer.data(), buffer.bytes());
  return metadata_.emplace_back(Metadata{&device, std::move(buffer), digest}).buffer.as<int32_t>();
}

void Launcher::add_ranks(const Workload& workload) {
  const CaseParams& p = workload.item().params;
  const int32_t lead = workload.plan().cu_seqlens_q.front();
  std::vector<AttentionParams> whole;
  for (int32_t r = 0; r < p.devices(); ++r) whole.push_back(workload.of_rank(r).params().attention);
  if (parts_of(p, whole.front(), lead).empty()) return;
  std::string why_not;
  RankTeam* team = device_->rank_team(p.devices(), why_not);
  if (team == nullptr) throw DeviceError(why_not, false);
  exchange_.emplace(*team, p, whole, lead);
  for (int32_t r = 0; r < p.devices(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    Device& device = *team->devices[i];
    const Part part = parts_of(p, whole[i], lead)[i];
    AttentionParams a = part.params;
    a.cu_seqlens_q = keep("cu_seqlens_q of a part", part.cu_seqlens_q, device);
    exchange_->set_pointers(r, a);
    team->streams[i]->make_current();
    add_step(*kernel_, op_params(a), device);
  }
  team->streams[0]->make_current();
}

void Launcher::add_parts(KernelTable table, const Workload& workload) {
  const CaseParams& p = workload.item().params;
  const AttentionParams& whole = params_.attention;
  const int32_t lead = workload.plan().cu_seqlens_q.front();
  std::vector<Part> parts = parts_of(p, whole, lead);
  if (parts.empty()) return;
  const int32_t states = merged_states(p);
  MergeStatesParams merge = merge_of(whole, states, lead);
  const int64_t state_bytes =
      merge.partial_stride_state * static_cast<int64_t>(dtype_size(merge.dtype_partial));
  if (states > 0) {
    partial_out_ = GuardedBuffer(*device_, "partial states", states * state_bytes, Access::kWrites);
    partial_lse_ = GuardedBuffer(*device_, "partial LSEs",
                                 states * merge.lse_stride_state * int64_t{sizeof(float)}, Access::kWrites);
    device_->set_bytes(partial_out_.data(), 0xff, partial_out_.bytes());
    device_->set_bytes(partial_lse_.data(), 0xff, partial_lse_.bytes());
    device_->synchronize();
  }
  for (Part& part : parts) {
    AttentionParams& a = part.params;
    a.cu_seqlens_q = keep("cu_seqlens_q of a part", part.cu_seqlens_q, *device_);
    if (!part.seqused_k.empty()) a.seqused_k = keep("seqused_k of a part", part.seqused_k, *device_);
    if (part.state >= 0) {
      a.out = partial_out_.as<char>() + part.state * state_bytes;
      a.lse = partial_lse_.as<float>() + part.state * merge.lse_stride_state;
    }
    add_step(*kernel_, op_params(a), *device_);
  }
  if (states == 0) return;
  merge.partial_out = partial_out_.data();
  merge.partial_lse = partial_lse_.as<float>();
  const Kernel* merger = merge_kernel(*kernel_, table, *device_, op_params(merge));
  if (!merger) throw KernelError(fmt::format("{}: no kernel merges its {} states", kernel_->name, states));
  add_step(*merger, op_params(merge), *device_);
}

std::size_t Launcher::workspace_bytes() const {
  std::size_t most = 0;
  for (const Step& step : steps_) most = std::max(most, step.context.workspace_bytes);
  return most;
}

Tile Launcher::tile() const {
  if (kernel_->tile == nullptr) return {};
  return guarded(*kernel_, "tile", [&] { return kernel_->tile(&params_); });
}

std::vector<ReturnedTensor> returned_tensors(const AttentionParams& p, const ReturnedOutputs& r) {
  std::vector<ReturnedTensor> tensors;
  ReturnedTensor t{.tokens = p.total_q, .heads = p.num_heads_q};
  if (r.out != nullptr) {
    t.from = {r.out, r.out_stride_token, r.out_stride_head, r.out_stride_channel};
    t.to = {p.out, p.out_stride_token, p.out_stride_head, 1};
    t.dtype = p.dtype_out;
    t.channels = p.head_dim_v;
    tensors.push_back(t);
  }
  if (r.lse != nullptr) {
    t.from = {r.lse, r.lse_stride_token, r.lse_stride_head, 1};
    const bool token_major = (p.features & kLseTokenMajor) != 0;
    t.to = {p.lse, token_major ? p.lse_stride_token : 1, token_major ? 1 : p.lse_stride_head, 1};
    t.dtype = DType::kFp32;
    t.channels = 1;
    t.factor = r.lse_factor;  // to natural logarithms
    if (p.features & kLseBase2) t.factor *= std::numbers::log2e_v<float>;
    tensors.push_back(t);
  }
  return tensors;
}

void Launcher::take_outputs() {
  if (exchange_) return exchange_->take_outputs();
  for (const Step& step : steps_) {
    if (step.context.returned == nullptr) continue;
    for (const ReturnedTensor& t : returned_tensors(step.params.attention, step.returned))
      device_->take_returned(t);
  }
}

namespace {

/// Kernels of this process can touch only what they may see while it lives.
class Protected {
 public:
  explicit Protected(Device& device) : device_(device) { device_.protect(true); }
  ~Protected() { device_.protect(false); }
  Protected(const Protected&) = delete;
  Protected& operator=(const Protected&) = delete;

 private:
  Device& device_;
};

}  // namespace

void Launcher::launch() {
  if (device_->kernel_host() != nullptr) {
    enqueue(true);
  } else {
    const StateBefore before(StateBefore::Scope::kTeam);
    {
      const Protected memory(*device_);
      enqueue(true);
    }
    expect_restored(before);
  }
  if (exchange_) exchange_->wait();
  take_outputs();
}

void Launcher::expect_restored(const StateBefore& before) const {
  attnbench::expect_restored(before, *kernel_, "launch");
}

void Launcher::launch_alone() { enqueue(false); }

void Launcher::enqueue(bool waited_for) {
  const DeviceRange range(*device_, "launch");
  if (exchange_) {
    const auto attend = [&](int32_t rank) { launch_step(steps_[static_cast<std::size_t>(rank)]); };
    return exchange_->launch(attend, waited_for);
  }
  for (Step& step : steps_) launch_step(step);
}

void Launcher::launch_step(Step& step) {
  if ((step.kernel->flags & kReturnsOutputs) != 0) {
    step.returned = {};
    step.context.returned = &step.returned;
  }
  expect_ok(*step.kernel, "launch",
            [&](KernelMessage* m) { return step.kernel->launch(&step.params, &step.context, m); });
}

std::optional<std::string> Launcher::memory_damage() const {
  for (const Step& step : steps_) {
    if (auto damage = step.workspace.damage()) return damage;
  }
  for (const GuardedBuffer* b : {&partial_out_, &partial_lse_}) {
    if (auto damage = b->damage()) return damage;
  }
  if (exchange_) {
    if (auto damage = exchange_->memory_damage()) return damage;
  }
  for (const Metadata& m : metadata_) {
    if (auto damage = m.buffer.damage()) return damage;
    if (m.device->digest(m.buffer.data(), m.buffer.bytes()) != m.digest) {
      return m.buffer.name() + " was overwritten";
    }
  }
  return std::nullopt;
}

HostOutputs Launcher::outputs(const Workload& workload) const {
  HostOutputs h = workload.download_outputs();
  h.no_lse = (kernel_->flags & kNoLse) != 0;
  if ((kernel_->flags & kInfEmptyLse) != 0) h.flip_infinities();
  if (returns_outputs()) h.unused_written.clear();  // the harness wrote the rows
  if (const auto partial = states()) h.extra_variance = merge_variance(*partial);
  return h;
}

std::optional<PartialStates> Launcher::states() const {
  PartialStates states;
  if (exchange_) {
    states = exchange_->states();
  } else if (partial_out_.data()) {
    states.layout = steps_.back().params.merge_states;
    states.out.resize(static_cast<std::size_t>(partial_out_.bytes()));
    states.lse.resize(static_cast<std::size_t>(partial_lse_.bytes()) / sizeof(float));
    device_->download(states.out.data(), partial_out_.data(), partial_out_.bytes());
    device_->download(states.lse.data(), partial_lse_.data(), partial_lse_.bytes());
    states.merge_numerics = merge_numerics_;
    states.keys = params_.attention.max_seqlen_k;
  } else {
    return std::nullopt;
  }
  states.numerics = numerics_;
  return states;
}

}  // namespace attnbench
