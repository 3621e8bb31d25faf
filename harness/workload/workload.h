// A case in the memory of a device: inputs, outputs, poison and guards.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "harness/workload/guarded_buffer.h"
#include "harness/workload/plan.h"
#include "harness/workload/strides.h"

namespace attnbench {

/// What a launch left behind, on the host.
struct HostOutputs {
  std::vector<unsigned char> out;  ///< attention, merge_states: (total_q, Hq, Dv) in the case's dtype
  std::vector<float> lse;          ///< attention, merge_states: (Hq, total_q)
  std::vector<float> probs;        ///< attention: (Hq, total_q, max_seqlen_k) where asked for, else empty
  /// Attention: variance of O beyond what one launch may have, as of outputs merged from several; like `out`,
  /// or empty.
  std::vector<double> extra_variance;
  std::vector<unsigned char> k_cache, v_cache;  ///< where a launch appends: the whole caches
  /// kv_append: the whole caches of computed scales (append_scales.h); empty where none are computed.
  std::vector<float> k_scales, v_scales;
  /// Where strides are padded: which output was written between its rows, in words; empty where none was.
  std::string stray;
  /// Attention that appends: (total_new, Hkv, D), the new keys as they are stored.
  std::vector<unsigned char> new_k;
};

class Workload {
 public:
  /// Allocates and fills. Throws OutOfMemory, DeviceError, TooLarge.
  Workload(Device& device, const Case& item, const LayoutVariant& variant = {});

  const Case& item() const { return item_; }
  const WorkloadPlan& plan() const { return plan_; }
  OpParams params() const;

  /// The fields of params() that need no memory: enough for Kernel::supports. With padded strides or dense
  /// ones.
  static OpParams shape_params(const Case& item, bool padded = false);

  /// Puts the inputs, lengths and tables of `other` in place of its own: as many sequences, strides and
  /// maxima alike, no more tokens or blocks. Outputs are then other's, with padding behind its last token.
  /// Not for cases that append. Throws std::logic_error where something has no room.
  void take_inputs_of(const Workload& other);

  /// Before a checked launch: outputs to NaN, caches that it appends to back to their state before.
  void reset_outputs();
  HostOutputs download_outputs() const;  ///< throws TooLarge, DeviceError
  /// Digest of all outputs where they lie: equal digests, equal bits.
  uint64_t outputs_digest() const;

  /// Damage to guard zones since construction, in words; nullopt when all are whole.
  std::optional<std::string> guard_damage() const;
  /// The same of inputs.
  std::optional<std::string> input_damage() const;

  /// A job that fills one of the caches; `host` owners and base are the caller's. For the expected state.
  FillJob cache_job(bool is_v) const;
  bool padded() const { return padded_; }

 private:
  enum class Role {
    kInput,   ///< must stay as it is: input_damage compares its digest
    kOutput,  ///< NaN before a checked launch
    kState,   ///< a cache that a launch changes in place: restored before a checked launch
  };
  /// Every tensor that some launch sees. Damage is looked for in this order.
  enum Slot : std::size_t {
    kQ,
    kK,
    kV,
    kOut,
    kLse,
    kNewK,
    kNewV,
    kSlotMapping,
    kCuSeqlensQ,
    kCuSeqlensK,
    kSequsedK,
    kBlockTable,
    kCacheBatchIdx,
    kCacheLeftpad,
    kAlibiSlopes,
    kSinks,
    kQDescale,
    kKDescale,
    kVDescale,  ///< of kv_append: the given scales
    kRotaryCos,
    kRotarySin,
    kPositions,
    kCuSeqlensNew,
    kPartialOut,
    kPartialLse,
    kProbs,
    kKScales,
    kVScales,  ///< the caches of computed scales
    kSlots,
  };
  struct Buffer {
    GuardedBuffer memory;  ///< without data where the case has no such tensor
    Role role = Role::kInput;
    uint64_t digest = 0;  ///< of an input
  };

  void make_attention(const LayoutVariant& variant);
  void make_kv_append();
  void make_states();
  void make_caches();
  void make_rotary_tables();

  /// Allocates; with padded strides NaN, since no fill writes between the rows.
  GuardedBuffer& make(Slot slot, Role role, const char* name, int64_t bytes);
  /// An input that holds these values.
  template <class T>
  void make_input(Slot slot, const char* name, const std::vector<T>& host);
  void make_tokens(Slot slot, const char* name, Tensor tensor, DType dtype,
                   const std::vector<RowOwner>& owners, int32_t heads, const TokenStrides& strides);
  /// Puts a cache back to its state before a launch.
  void restore(Slot slot);
  void remember_inputs();

  const GuardedBuffer& memory(Slot slot) const { return buffers_[slot].memory; }
  void* data(Slot slot) const { return memory(slot).data(); }
  template <class T>
  T* data(Slot slot) const {
    return memory(slot).as<T>();
  }

  int64_t lse_stride(int64_t rows) const { return rows + (padded_ ? kPadRow : 0); }
  void drop_padding(HostOutputs& h) const;
  void take_new_keys(HostOutputs& h) const;
  void set_rotary_tables(RotaryParams& rotary) const;

  Device* device_;
  Case item_;
  WorkloadPlan plan_;
  bool padded_ = false;
  std::array<Buffer, kSlots> buffers_;
  int32_t rotary_positions_ = 0;
  GuardedBuffer kv_owners_;  ///< of the rows of the caches; no launch sees it
};

}  // namespace attnbench
