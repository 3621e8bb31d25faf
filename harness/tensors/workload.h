// A case in device memory: inputs, outputs, poison and guards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "harness/device/device.h"
#include "harness/tensors/guarded_buffer.h"
#include "harness/tensors/host_bytes.h"
#include "harness/tensors/plan.h"
#include "harness/tensors/sign_plan.h"
#include "harness/tensors/strides.h"
#include "harness/values/signs.h"

namespace attnbench {

/// The outputs of a launch, on the host.
struct HostOutputs {
  /// Attention, merge_states: (total_q, Hq, Dv) in the case's type_of_out(). kv_append: query_out as it lies in
  /// memory, or empty.
  std::vector<unsigned char> out;
  std::vector<float> lse;      ///< attention, merge_states: (Hq, total_q)
  bool no_lse = false;         ///< `lse` is not judged (kNoLse)
  bool inf_empty_lse = false;  ///< infinities of `lse` have the other sign than the kernel's (kInfEmptyLse)
  std::vector<float> probs;    ///< attention with `probs`: (Hq, total_q, max_seqlen_k), else empty
  /// Attention merged from several launches: variance of O in addition to that of one launch, shaped like
  /// `out`; else empty.
  std::vector<double> extra_variance;
  /// The whole caches, if the launch appends; kv_move: the whole destination.
  HostBytes k_cache, v_cache;
  /// kv_append: the whole caches of computed scales (ops/kv_append/tensors_scales.h); empty if none are computed.
  std::vector<float> k_scales, v_scales;
  /// Padded strides: which output was written between its rows, in words; empty if none was.
  std::string stray;
  /// `gap_queries`: which output was written in a row of no query, in words; empty if none was.
  std::string unused_written;
  /// attention_backward: (total_q, Hq, D), (total_k, Hkv, D), (total_k, Hkv, Dv) in the case's dtype, and (Hq)
  /// or empty.
  std::vector<unsigned char> dq, dk, dv;
  std::vector<float> dsinks;
  /// Takes an LSE of +inf for that of a row without keys, where the contract says -inf.
  void flip_infinities();
  /// Attention that appends: (total_new, Hkv, D), the new keys and values as the launch stored them.
  std::vector<unsigned char> new_k, new_v;
};

/// When the numbers that a launch computes with are written. kLater: tensors of tokens and states hold poison
/// until fill_values(), so that what happens before (Kernel::plan) sees lengths and tables only.
enum class Values { kNow, kLater };

/// What a launch may do to a tensor.
enum class Role {
  kInput,   ///< must not change: input_damage compares its digest
  kOutput,  ///< NaN before a verified launch
  kState,   ///< a cache that a launch changes in place: restored before a verified launch
};

/// The table of signs that a tensor follows (sign_plan.h); kRows: that of the rows of fp8_ds_mla.
enum class SignsOf { kNothing, kQk, kV, kRows };

/// How the rows of a tensor lie, and what changes sign in them. `at` has neither memory nor table.
struct Rows {
  SignsOf signs = SignsOf::kNothing;
  SignedTensor at = {};
  bool poisoned = true;  ///< WatchedOutput::poisoned
};
/// Rows (tokens, heads, channels); `group`: heads that share signs.
Rows token_rows(SignsOf signs, DType dtype, int32_t heads, int32_t channels, int32_t group = 1);

/// A tensor that a launch sees. Its name is the contract's.
struct NamedTensor {
  /// Computes the values from coordinates, into memory of the tensor's layout.
  using Fill = std::function<void(void* to)>;

  GuardedBuffer memory;
  Role role;
  Rows rows;
  Fill fill;            ///< null: values were copied from the host, or a launch computes them
  uint64_t digest = 0;  ///< of an input, at the start
};

/// A job that fills rows of tokens; the caller sets `base` and `owners`.
FillJob token_job(const Case& c, Tensor tensor, DType dtype, int64_t rows, int32_t heads, int32_t dim,
                  const TokenStrides& strides);

class Workload {
 public:
  /// Allocates and fills all tensors. Throws OutOfMemory, DeviceError, TooLarge.
  /// `before`: gives its memory to tensors of equal names and sizes, and is of no use afterwards.
  Workload(Device& device, const Case& item, const LayoutVariant& variant = {}, Values values = Values::kNow,
           Workload* before = nullptr);
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  /// With Values::kLater, call once before the first launch.
  void fill_values();

  /// Whether `before` had memory for all tensors: launches that were planned for it are right for this one.
  bool in_place() const { return in_place_; }

  Device& device() const { return *device_; }
  const Case& item() const { return item_; }
  const LayoutVariant& variant() const { return variant_; }
  /// Whether some tensor has rows without memory (SeenPart::holes).
  bool has_holes() const;
  bool padded() const { return variant_.padded_strides; }
  const WorkloadPlan& plan() const { return plan_; }
  /// What lies on the device of rank `rank`. Rank 0 is this workload, which has the outputs of the case.
  const Workload& of_rank(int32_t rank) const {
    return rank == 0 ? *this : *others_[static_cast<std::size_t>(rank) - 1];
  }
  OpParams params() const;

  /// The fields of params() that need no memory: enough for Kernel::supports. Strides are padded if `padded`,
  /// else dense.
  static OpParams shape_params(const Case& item, bool padded = false);

  /// Replaces the inputs, lengths and tables by those of `other`. `other` must have the same number of
  /// sequences, the same strides and maxima, and no more tokens or blocks. A launch then computes the outputs
  /// of `other`, with padding behind its last token. Not for cases that append. Throws std::logic_error if a
  /// tensor of `other` is too large.
  void take_inputs_of(const Workload& other);

  /// Call before a verified launch: sets outputs to NaN, or all their bytes to `fill`, and restores caches that a launch
  /// changes.
  void reset_outputs(unsigned char fill = 0xff);
  /// The same for a launch that is timed: of a cache only the rows that the launch writes. Dense strides only.
  void poison_outputs();
  /// Changes signs of inputs, so that a launch gets numbers it has not seen (sign_plan.h). Signs stay changed
  /// until the next call. Outputs are read without them by watched_outputs() and download_outputs(), but not
  /// by outputs_digest(). Call poison_outputs() before the next launch. Dense strides only.
  ///
  /// The signs of the channels `late` change too, but at the last moment before the launch. The return value
  /// says what is then to be changed, for LaunchWatch, and is valid as long as watched_outputs().
  std::vector<LateSigns> set_signs(const SignPlan& signs, const FewChannels& late = {});
  /// Multiplies an input, 0 and powers of two exactly. NaN stays.
  void scale_input(std::string_view name, DType dtype, float factor);
  /// The signs that the inputs have now.
  SignPlan signs() const { return signs_.v.empty() ? plain_signs(item_.params) : signs_; }
  /// The outputs of a launch, for Device::time_launch and for LaunchWatch. Valid until the next set_signs().
  std::vector<WatchedOutput> watched_outputs() const;
  HostOutputs download_outputs() const;  ///< throws TooLarge, DeviceError
  /// Digest of all outputs, computed on the device. Equal digests are taken as equal bits.
  uint64_t outputs_digest() const;

  /// The first damage to a guard zone since construction, in words; nullopt if all are intact.
  std::optional<std::string> guard_damage() const;
  /// The first input that was overwritten, in words; nullopt if none was.
  std::optional<std::string> input_damage() const;

  /// A job that fills a cache as this workload's; the caller sets `owners` and, to cache_base, `base`. Rows of
  /// fp8_ds_mla have more than this.
  FillJob cache_job(bool is_v) const;
  /// Where K or V begins in memory that is laid out as this workload's cache. `one_row`: both in K's.
  void* cache_base(bool is_v, void* cache) const;

  // What ops/<op>/tensors.cpp builds a launch with. A launch without a tensor has null pointers and no bytes there.

  const NamedTensor* find(std::string_view name) const;
  void* data(std::string_view name) const {
    const NamedTensor* t = find(name);
    return t == nullptr ? nullptr : t->memory.data();
  }
  template <class T>
  T* data(std::string_view name) const {
    return static_cast<T*>(data(name));
  }
  /// A copy on the host, with the signs of a launch on plain inputs; empty without such a tensor. Throws TooLarge.
  template <class T = unsigned char>
  std::vector<T> download(std::string_view name) const;
  /// The same of a cache, which may have holes.
  HostBytes download_cache(std::string_view name) const;

  /// `seen`: the part that a launch may read; what follows it shows reads on devices that cannot hide it.
  void add(const char* name, Role role, int64_t bytes, const Rows& rows = {},
           NamedTensor::Fill fill = nullptr, const SeenPart& seen = {});
  /// Adds an input that holds these numbers, and behind them what is not the launch's, as in a buffer that an engine
  /// makes once for its largest batch. A kernel that takes one sequence or token too many then goes wrong every time, not
  /// by luck.
  template <class T>
  void add_input(const char* name, const std::vector<T>& host,
                 const std::vector<std::type_identity_t<T>>& stale = {}) {
    if (stale.empty()) return add_input_and_stale(name, host, 0);
    std::vector<T> all = host;
    all.insert(all.end(), stale.begin(), stale.end());
    add_input_and_stale(name, all, std::ssize(stale));
  }
  template <class T>
  void add_input_and_stale(const char* name, const std::vector<T>& host, int64_t stale) {
    const auto bytes = static_cast<int64_t>(host.size() * sizeof(T));
    const SeenPart seen{.behind = stale * static_cast<int64_t>(sizeof(T))};
    tensors_.push_back({memory_for(name, Role::kInput, bytes, seen), Role::kInput, {}, nullptr});
    if (bytes > 0) device_->upload(tensors_.back().memory.data(), host.data(), bytes);
  }
  /// Cumulative lengths, and behind them a sequence of one token.
  void add_cu_seqlens(const char* name, const std::vector<int32_t>& host) {
    add_input(name, host, {host.back() + 1});
  }
  /// Adds an input that `job` fills. `owners`: of its rows, in plan().
  void add_rows(const char* name, FillJob job, const std::vector<RowOwner>& owners, int64_t bytes,
                const Rows& rows, const SeenPart& seen = {});
  /// Adds an input of tokens, which follows a table of signs. `tail`: rows behind those of the launch.
  void add_tokens(const char* name, Tensor tensor, DType dtype, const std::vector<RowOwner>& owners,
                  int32_t heads, int32_t dim, const TokenStrides& strides, SignsOf signs,
                  int64_t tail = kTailRows);
  /// What a launch may read of a cache or of packed rows: blocks that hold a row of the case, and others between them if they are
  /// small. A pool can so have more addresses than there is memory. `tail`: rows behind it.
  SeenPart seen_of_cache(const FillJob& job, const std::vector<RowOwner>& owners, int64_t tail = 0) const;
  /// Adds the rows of K or V that plan().kv_owners names.
  void add_cache(const char* name, bool is_v, Role role);
  /// Rows of the caches behind those of the launch.
  int64_t kv_tail() const {
    return item_.params.kv == KvSource::kPacked || item_.params.gathers() ? kTailRows : 0;
  }
  /// The owners of the caches' rows on the device. No launch sees them.
  const RowOwner* kv_owners();

 private:
  GuardedBuffer memory_for(const char* name, Role role, int64_t bytes, SeenPart seen);
  void compute_inputs();
  void fill(const FillJob& job, const std::vector<RowOwner>& owners, int64_t bytes);
  /// All jobs that fill a cache at `base`, with the rows of this workload.
  std::vector<FillJob> cache_jobs(bool is_v, void* base) const;
  Rows cache_rows(bool is_v) const;
  /// The tensor with its place in the table of signs, or of changed ones.
  SignedTensor signed_tensor(const NamedTensor& t, bool of_change = false) const;
  void take_signs_off(const NamedTensor& t, void* host, std::span<const Hole> holes = {}) const;
  /// Sets a state to what it is before a launch.
  void restore(const NamedTensor& t);
  void remember_inputs();
  /// The first damage that one of the other ranks has, with its name.
  std::optional<std::string> of_others(
      const std::function<std::optional<std::string>(const Workload&)>& damage) const;

  Device* device_;
  Case item_;
  LayoutVariant variant_;
  WorkloadPlan plan_;
  std::vector<NamedTensor> tensors_;  ///< in the order in which damage is searched
  GuardedBuffer kv_owners_;
  bool later_ = false;  ///< values are not filled yet
  Workload* before_;    ///< while this is made
  bool in_place_ = true;
  SignPlan signs_;  ///< of the inputs as they are; empty: none were ever changed
  /// What the last set_signs() changed (qk, then v), then signs_ (qk, then v); no launch sees it.
  GuardedBuffer sign_table_;
  GuardedBuffer appended_slots_;   ///< rows of the caches that a launch writes; no launch sees it
  GuardedBuffer appended_tokens_;  ///< tokens of kv_append that are no padding; no launch sees it
  /// Those of ranks 1 and more, each on a device of its own, which change as this one does.
  std::vector<std::unique_ptr<Workload>> others_;
};

extern template std::vector<unsigned char> Workload::download(std::string_view) const;
extern template std::vector<float> Workload::download(std::string_view) const;

}  // namespace attnbench
