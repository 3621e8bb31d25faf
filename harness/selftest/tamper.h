// A decorator around a right kernel: gives a fault access to a launch's parameters and memory, on any device.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "harness/cases/visible_keys.h"
#include "harness/device/device.h"
#include "harness/tensors/guarded_buffer.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// O and LSE of a launch, copied to the host. A token is a row of the packed tensors, counted with unused
/// leading rows.
struct OutView {
  const AttentionParams* p;
  std::vector<unsigned char> out;
  std::vector<float> lse;

  float o(int64_t token, int head, int channel) const {
    return load_float(p->dtype_out, out.data(), index(token, head) + channel);
  }
  void set_o(int64_t token, int head, int channel, float x) {
    store_float(p->dtype_out, out.data(), index(token, head) + channel, x);
  }
  /// Flips the last bit of an element, a change that no tolerance can see.
  void nudge(int64_t token, int head, int channel) { out[bytes(token, head, channel)] ^= 1; }
  float& lse_of(int64_t token, int head) {
    const bool token_major = (p->features & kLseTokenMajor) != 0;
    return lse[static_cast<std::size_t>(token_major ? token * p->lse_stride_token + head
                                                    : head * p->lse_stride_head + token)];
  }
  std::size_t bytes(int64_t token, int head, int channel) const {
    return static_cast<std::size_t>(index(token, head) + channel) * dtype_size(p->dtype_out);
  }

 private:
  int64_t index(int64_t token, int head) const {
    return token * p->out_stride_token + head * p->out_stride_head;
  }
};

/// Causal mask, window and chunk of a launch of attention or attention_backward.
template <class Params>
Mask mask_of_launch(const Params& p) {
  Mask mask{p.causal != 0, p.window_left, p.window_right, 0, (p.features & kTopLeft) != 0};
  if constexpr (requires { p.attention_chunk; }) mask.chunk = p.attention_chunk;
  return mask;
}

/// Number of elements of the LSE that a launch may address.
inline int64_t lse_elements(const AttentionParams& p) {
  return p.features & kLseTokenMajor ? p.total_q * p.lse_stride_token : p.num_heads_q * p.lse_stride_head;
}

/// Number of elements of K or V that a launch may address.
int64_t kv_elements(const AttentionParams& p, const std::vector<int32_t>& cu_seqlens_k, bool is_v);

class Tamper {
 public:
  using Fault = std::function<KernelStatus(Tamper&, const OpParams&)>;

  Tamper(const Kernel& good, Device& device) : good_(&good), device_(&device) {}

  /// Returns a copy of the right kernel whose launches go through `fault` until the next call. A process can
  /// have only one at a time, because a kernel is a table of plain functions.
  const Kernel& armed(Fault fault);

  /// Makes `supports` of the kernel that armed() returned accept everything.
  void take_all();

  /// Plans and launches the right kernel with these parameters, and waits for its end.
  KernelStatus launch(const OpParams& p);
  KernelStatus launch(const AttentionParams& p);

  /// Why the right kernel refused the parameters that a fault gave it; empty if it took them.
  const std::string& refusal() const { return refusal_; }
  /// Launches since armed(), the present one included.
  int64_t launches() const { return launches_; }
  /// Least workspace of every launch, in bytes.
  static constexpr std::size_t kWorkspace = 256;
  void* workspace() const { return context_->workspace; }
  std::size_t workspace_bytes() const { return context_->workspace_bytes; }

  template <class T>
  std::vector<T> read(const void* from, int64_t n) {
    std::vector<T> host(static_cast<std::size_t>(n));
    if (n > 0) device_->download(host.data(), from, n * static_cast<int64_t>(sizeof(T)));
    return host;
  }
  template <class T>
  void write(const void* to, const std::vector<T>& host) {
    device_->upload(const_cast<void*>(to), host.data(), static_cast<int64_t>(host.size() * sizeof(T)));
  }
  /// Copies to device memory; valid until the next launch of the decorated kernel.
  template <class T>
  T* put(const std::vector<T>& host) {
    kept_.push_back(GuardedBuffer::of(*device_, "tampered", host));
    return kept_.back().template as<T>();
  }
  /// Changes the outputs of a launch.
  void edit(const AttentionParams& p, const std::function<void(OutView&)>& change);
  OutView output(const AttentionParams& p);

 private:
  static KernelStatus decorated(const OpParams*, const LaunchContext*, KernelMessage*);
  static std::size_t decorated_workspace(const OpParams*, const LaunchContext*);
  static Tamper* armed_;

  const Kernel* good_;
  Device* device_;
  Kernel kernel_{};
  Fault fault_;
  const LaunchContext* context_ = nullptr;
  KernelMessage* message_ = nullptr;
  std::vector<GuardedBuffer> kept_;
  std::string refusal_;
  int64_t launches_ = 0;
};

}  // namespace attnbench
