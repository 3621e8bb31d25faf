// A case in device memory: inputs, outputs, poison and guards.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "harness/workload/guarded_buffer.h"
#include "harness/workload/plan.h"
#include "harness/workload/sign_plan.h"
#include "harness/workload/strides.h"

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
  std::vector<unsigned char> k_cache, v_cache;
  /// kv_append: the whole caches of computed scales (append_scales.h); empty if none are computed.
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

class Workload {
 public:
  /// Allocates and fills all tensors. Throws OutOfMemory, DeviceError, TooLarge.
  Workload(Device& device, const Case& item, const LayoutVariant& variant = {}, Values values = Values::kNow);
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  /// With Values::kLater, call once before the first launch.
  void fill_values();

  const Case& item() const { return item_; }
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
  /// attention_backward: multiplies dO, 0 and powers of two exactly. NaN stays.
  void scale_d_out(float factor);
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
  /// fp8_ds_mla have more than this, see cache_jobs.
  FillJob cache_job(bool is_v) const;
  /// All jobs that fill a cache at `base`, with the rows of this workload.
  std::vector<FillJob> cache_jobs(bool is_v, void* base) const;
  /// Where K or V begins in memory that is laid out as this workload's cache. `one_row`: both in K's.
  void* cache_base(bool is_v, void* cache) const;
  bool padded() const { return padded_; }

 private:
  enum class Role {
    kInput,   ///< must not change: input_damage compares its digest
    kOutput,  ///< NaN before a verified launch
    kState,   ///< a cache that a launch changes in place: restored before a verified launch
  };
  /// Every tensor that some launch sees, in the order in which damage is searched.
  enum Slot : std::size_t {
    kQ,
    kQv,
    kK,
    kV,
    kOut,  ///< kv_append: query_out, from the queries in kQ; their scale is kOutScale
    kLse,
    kNewK,
    kNewV,  ///< kNewK, kNewV: new rows; kv_move: the source, unless that is the pool of kK and kV
    kSlotMapping,
    kCuSeqlensQ,
    kCuSeqlensK,
    kSequsedQ,
    kSequsedK,
    kBlockTable,
    kCacheBatchIdx,
    kCacheLeftpad,
    kCustomMask,
    kMaskIndptr,
    kTopkIndices,
    kTopkLengths,
    kAlibiSlopes,
    kSinks,
    kQDescale,
    kKDescale,
    kVDescale,  ///< kKDescale, kVDescale: of kv_append, the given scales
    kOutScale,
    kRotaryCos,
    kRotarySin,
    kPositions,
    kCuSeqlensNew,
    kBlockPairs,
    kFirstRows,  ///< seq_starts
    kPartialOut,
    kPartialLse,
    kStateIndptr,
    kProbs,
    kKScales,
    kVScales,  ///< kKScales, kVScales: caches of computed scales
    kKBlockScales,
    kVBlockScales,  ///< kKBlockScales, kVBlockScales: tensors of scales for blocks of channels
    kDOut,
    kDq,
    kDk,
    kDv,
    kDsinks,
    kSlots,
  };
  struct Buffer {
    GuardedBuffer memory;  ///< without data if the case has no such tensor
    Role role = Role::kInput;
    uint64_t digest = 0;  ///< of an input, at the start
  };

  void make_attention(const LayoutVariant& variant);
  void make_kv_append();
  void make_positions();
  void make_states();
  void make_backward(const LayoutVariant& variant);
  void make_kv_move();
  void set_move_pointers(KvMoveParams& m) const;
  void set_backward_pointers(AttentionBackwardParams& g) const;
  /// Computes the inputs O and LSE of attention_backward by `forward_`.
  void run_forward();
  HostOutputs gradients() const;
  void make_caches();
  void make_block_scales();
  void set_block_scales(AttentionParams& a) const;
  void make_rotary_tables();
  /// Fills a tensor of `bytes` by coordinate, or with captured values. `owners`: as the job's, on the host.
  void fill(const FillJob& job, const std::vector<RowOwner>& owners, int64_t bytes);
  /// Fills a tensor of tokens, now or later. The job has no owners yet.
  void fill_rows(FillJob job, const std::vector<RowOwner>& owners, int64_t bytes);
  /// The tensor of a slot, with its place in the table of signs, or of changed ones; no data if the case has
  /// no such tensor.
  SignedTensor signed_tensor(Slot slot, bool of_change = false) const;
  void take_signs_off(HostOutputs& h) const;

  /// Allocates. Padded tensors are set to NaN first, because no fill writes between the rows.
  GuardedBuffer& make(Slot slot, Role role, const char* name, int64_t bytes);
  /// Makes an input that holds these values.
  template <class T>
  void make_input(Slot slot, const char* name, const std::vector<T>& host);
  void make_tokens(Slot slot, const char* name, Tensor tensor, DType dtype,
                   const std::vector<RowOwner>& owners, int32_t heads, const TokenStrides& strides,
                   int32_t dim);
  void make_lengths();
  void make_score_terms(const LayoutVariant& variant);
  /// Sets a cache to its state before a launch.
  void restore(Slot slot);
  void remember_inputs();
  /// The first damage that one of the other ranks has, with its name.
  std::optional<std::string> of_others(
      const std::function<std::optional<std::string>(const Workload&)>& damage) const;

  const GuardedBuffer& memory(Slot slot) const { return buffers_[slot].memory; }
  void* data(Slot slot) const { return memory(slot).data(); }
  template <class T>
  T* data(Slot slot) const {
    return memory(slot).as<T>();
  }

  int64_t lse_stride(int64_t rows) const { return rows + (padded_ ? kPadRow : 0); }
  /// Elements of an LSE; stride_token 0: heads are outside.
  int64_t lse_elements(int64_t rows, int64_t heads, int64_t stride_token) const {
    return stride_token > 0 ? rows * stride_token : heads * lse_stride(rows);
  }
  void drop_padding(HostOutputs& h) const;
  /// Makes natural logarithms (Hq, total_q) of an LSE without padding.
  void make_lse_plain(HostOutputs& h) const;
  void take_new_rows(HostOutputs& h) const;
  void drop_unused_rows(HostOutputs& h) const;
  void set_rotary_tables(RotaryParams& rotary) const;

  Device* device_;
  Case item_;
  WorkloadPlan plan_;
  bool padded_ = false;
  std::array<Buffer, kSlots> buffers_;
  int32_t rotary_positions_ = 0;
  GuardedBuffer kv_owners_;  ///< owners of the caches' rows; no launch sees them
  struct Fill {
    FillJob job;
    GuardedBuffer owners;
  };
  std::vector<Fill> fills_;  ///< that fill_values() makes
  bool later_ = false;       ///< values are not filled yet
  const Kernel* forward_ = nullptr;
  SignPlan signs_;  ///< of the inputs as they are; empty: none were ever changed
  /// What the last set_signs() changed (qk, then v), then signs_ (qk, then v); no launch sees it.
  GuardedBuffer sign_table_;
  GuardedBuffer appended_slots_;   ///< rows of the caches that a launch writes; no launch sees it
  GuardedBuffer appended_tokens_;  ///< tokens of kv_append that are no padding; no launch sees it
  /// Those of ranks 1 and more, each on a device of its own, which change as this one does.
  std::vector<std::unique_ptr<Workload>> others_;
};

}  // namespace attnbench
