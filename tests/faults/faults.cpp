#include "tests/faults/faults.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "harness/device/sanitized.h"
#include "kernels/common/addressing.h"
#if ATTNBENCH_FAULTS_CUDA
#include "kernels/examples/cuda/kernel.h"
#endif
#include "kernels/examples/cpu/kernel.h"
#include "tests/faults/broken.h"
#include "tests/faults/slow.h"
#include "tests/faults/wraps.h"

namespace attnbench::faults {
namespace {

const Kernel& good() {
  static const Kernel& found = *[] {
    for (const Kernel* k : builtin_kernels()) {
      if (k->op == Op::kAttention && k->device == DeviceKind::kCpu) return k;
    }
    std::abort();  // the cpu kernel is always built
  }();
  return found;
}

int64_t last_row(const AttentionParams& a) {
  return (a.total_q - 1) * a.out_stride_token + (a.num_heads_q - 1) * a.out_stride_head;
}

int32_t keys_of(const AttentionParams& a, int32_t b) {
  return a.seqused_k ? a.seqused_k[b] : a.cu_seqlens_k[b + 1] - a.cu_seqlens_k[b];
}

/// Each sequence ends one key early; the diagonal of a causal mask moves with it.
KernelStatus drop_last_key(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  OpParams wrong = *p;
  AttentionParams& a = wrong.attention;
  std::vector<int32_t> used(static_cast<std::size_t>(a.batch));
  for (int32_t b = 0; b < a.batch; ++b) {
    used[static_cast<std::size_t>(b)] = std::max(0, keys_of(a, b) - 1);
  }
  a.seqused_k = used.data();
  if (a.features & kPackedKv) a.features |= kPartialKv;
  return good().launch(&wrong, c, m);
}

/// Wrong only if a window meets a sequence that is one key shorter than the longest.
KernelStatus one_key_short(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  const AttentionParams& a = p->attention;
  int32_t longest = 0;
  for (int32_t b = 0; b < a.batch; ++b) longest = std::max(longest, keys_of(a, b));
  bool short_one = false;
  for (int32_t b = 0; b < a.batch; ++b) short_one = short_one || keys_of(a, b) == longest - 1;
  return short_one && a.window_left >= 0 ? drop_last_key(p, c, m) : good().launch(p, c, m);
}

template <uint64_t kFeatureBit>
KernelStatus segfaults_with(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  if (p->attention.features & kFeatureBit) std::raise(SIGSEGV);
  return good().launch(p, c, m);
}

/// Right except for one term of the scores.
KernelStatus with_attention(const OpParams* p, const LaunchContext* c, KernelMessage* m,
                            void (*change)(AttentionParams&)) {
  OpParams wrong = *p;
  change(wrong.attention);
  return good().launch(&wrong, c, m);
}
KernelStatus ignores_alibi(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  return with_attention(p, c, m, [](AttentionParams& a) { a.features &= ~uint64_t{kAlibi}; });
}
KernelStatus takes_slopes_of_sequence_0(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  return with_attention(p, c, m, [](AttentionParams& a) { a.alibi_stride_batch = 0; });
}
KernelStatus ignores_sinks(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  return with_attention(p, c, m, [](AttentionParams& a) { a.features &= ~uint64_t{kSinks}; });
}

KernelStatus scale_0_1_percent(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  OpParams wrong = *p;
  wrong.attention.softmax_scale *= 1.001f;
  return good().launch(&wrong, c, m);
}

/// The running maximum starts at kStart. If every score is so far below it that float32 exponentials are 0,
/// the row is taken for one without keys.
template <int kStart>
KernelStatus maximum_from(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  constexpr float kLeastExponent = -104.0f;
  const KernelStatus status = good().launch(p, c, m);
  const AttentionParams& a = p->attention;
  for (int64_t row = 0; status == KernelStatus::kOk && row < a.total_q; ++row) {
    for (int32_t h = 0; h < a.num_heads_q; ++h) {
      float& lse = a.lse[lse_offset(a, row, h)];
      if (!(lse < static_cast<float>(kStart) + kLeastExponent)) continue;
      lse = -INFINITY;
      for (int32_t ch = 0; ch < a.head_dim_v; ++ch)
        store_float(a.dtype_out, a.out, out_offset(a, row, h) + ch, 0);
    }
  }
  return status;
}

#if ATTNBENCH_FAULTS_CUDA
KernelStatus scale_0_1_percent_on_gpu(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  OpParams wrong = *p;
  wrong.attention.softmax_scale *= 1.001f;
  return first_attention_kernel(DeviceKind::kCuda)->launch(&wrong, c, m);
}
#endif

/// Does not write the last row of the last head.
KernelStatus unwritten_row(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  const AttentionParams& a = p->attention;
  const std::size_t e = dtype_size(a.dtype_out);
  char* row = static_cast<char*>(a.out) + static_cast<std::size_t>(last_row(a)) * e;
  const std::vector<char> before(row, row + static_cast<std::size_t>(a.head_dim_v) * e);
  const KernelStatus status = good().launch(p, c, m);
  std::memcpy(row, before.data(), before.size());
  return status;
}

/// NaN of its own.
KernelStatus nan_row(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  const KernelStatus status = good().launch(p, c, m);
  const AttentionParams& a = p->attention;
  const std::size_t e = dtype_size(a.dtype_out);
  std::memset(static_cast<char*>(a.out) + static_cast<std::size_t>(last_row(a)) * e, 0xff,
              static_cast<std::size_t>(a.head_dim_v) * e);
  return status;
}

KernelStatus past_the_end(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  const KernelStatus status = good().launch(p, c, m);
  const AttentionParams& a = p->attention;
  store_float(a.dtype_out, a.out, last_row(a) + a.head_dim_v, 0.5f);
  return status;
}

KernelStatus overwrites_input(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  const KernelStatus status = good().launch(p, c, m);
  const AttentionParams& a = p->attention;
  void* q = const_cast<void*>(a.q);
  store_float(a.dtype_q, q, 0, load_float(a.dtype_q, q, 0) + 1.0f);
  return status;
}

/// Right in the first launch and wrong afterwards. Only the second check of the timed buffers can see it.
KernelStatus wrong_when_timed(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static std::atomic<int> launches{0};
  return launches++ == 0 ? good().launch(p, c, m) : drop_last_key(p, c, m);
}

/// The first element is another one in each launch.
KernelStatus races(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static std::atomic<int> launches{0};
  const KernelStatus status = good().launch(p, c, m);
  store_float(p->attention.dtype_out, p->attention.out, 0, static_cast<float>(100 + ++launches));
  return status;
}

/// Wrong in the first launch and right afterwards.
KernelStatus wrong_at_first(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static std::atomic<int> launches{0};
  return launches++ == 0 ? drop_last_key(p, c, m) : good().launch(p, c, m);
}

/// Wrong in the first launch; later ones fail.
KernelStatus wrong_and_fails(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static std::atomic<int> launches{0};
  return launches++ == 0 ? drop_last_key(p, c, m)
                         : refuse(m, KernelStatus::kDeviceError, "the stream fell over");
}

/// Right in the first launch; later ones never come back.
KernelStatus hangs_when_timed(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static std::atomic<int> launches{0};
  while (launches > 0) std::this_thread::sleep_for(std::chrono::hours(1));
  ++launches;
  return good().launch(p, c, m);
}

/// Right in the first launch; the next one ends the process.
KernelStatus segfaults_when_timed(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static std::atomic<int> launches{0};
  if (launches++ > 0) std::raise(SIGSEGV);
  return good().launch(p, c, m);
}

/// Wrong in the first launch; the next one ends the process.
KernelStatus wrong_and_segfaults(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static std::atomic<int> launches{0};
  if (launches++ > 0) std::raise(SIGSEGV);
  return drop_last_key(p, c, m);
}

/// Two mistakes at once.
KernelStatus wrong_and_before_the_start(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  const AttentionParams& a = p->attention;
  const KernelStatus status = drop_last_key(p, c, m);
  a.lse[-1] = 0.5f;
  return status;
}

KernelStatus throws_status(const OpParams*, const LaunchContext*, KernelMessage* m) {
  return refuse(m, KernelStatus::kDeviceError, "the stream fell over");
}

KernelStatus refuses(const OpParams* p, const LaunchContext*, KernelMessage* m) {
  return refuse(m, KernelStatus::kUnsupported, "refuses: head_dim %d not in {64}", p->attention.head_dim);
}

/// Kernels that end or stop a process, or take all its memory.
KernelStatus segfaults(const OpParams*, const LaunchContext*, KernelMessage*) {
  std::fputs("segfaults: about to read address 8\n", stderr);
  int* volatile nowhere = reinterpret_cast<int*>(8);
  return *nowhere == 0 ? KernelStatus::kOk : KernelStatus::kDeviceError;
}
KernelStatus aborts(const OpParams*, const LaunchContext*, KernelMessage*) { std::abort(); }
KernelStatus exits(const OpParams*, const LaunchContext*, KernelMessage*) { std::_Exit(3); }
KernelStatus is_killed(const OpParams*, const LaunchContext*, KernelMessage*) {
  std::raise(SIGKILL);
  return KernelStatus::kOk;
}
KernelStatus throws_int(const OpParams*, const LaunchContext*, KernelMessage*) { throw 42; }
KernelStatus hangs(const OpParams*, const LaunchContext*, KernelMessage*) {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

/// Takes memory without touching it until there is none, 8 TiB at most. The system grants such memory.
/// Sanitizers mark each piece, which is slow; with them, one request asks for all of it and is refused.
KernelStatus overallocates(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  constexpr std::size_t kAll = std::size_t{1} << 43, kPiece = kSanitized ? kAll : std::size_t{1} << 30;
  std::vector<std::unique_ptr<char[]>> taken;
  for (std::size_t i = 0; i < kAll / kPiece; ++i) taken.emplace_back(new char[kPiece]);
  return good().launch(p, c, m);
}

/// Right, and slow enough for a signal to arrive during the launch.
KernelStatus slow(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return good().launch(p, c, m);
}

using Launch = KernelStatus (*)(const OpParams*, const LaunchContext*, KernelMessage*);

Kernel wrapped(const char* name, const char* summary, Launch launch) {
  Kernel k = good();
  k.name = name;
  k.summary = summary;
  k.launch = launch;
  return k;
}

}  // namespace

KernelStatus only_head_dim_24(const OpParams* p, const LaunchContext*, KernelMessage* m) {
  if (p->attention.head_dim == 24) return KernelStatus::kOk;
  return refuse(m, KernelStatus::kUnsupported, "head_dim %d not in {24}", p->attention.head_dim);
}

std::vector<const Kernel*> table_with_faults() {
  static std::deque<Kernel> kernels;
  if (kernels.empty()) {
    for (const Kernel& k : slow_kernels()) kernels.push_back(k);
#if ATTNBENCH_FAULTS_CUDA
    if (first_attention_kernel(DeviceKind::kCuda) != nullptr) {
      Kernel k = *first_attention_kernel(DeviceKind::kCuda);
      k.name = "scale_0_1_percent";
      k.summary = "fault: softmax_scale 0.1 % too large";
      k.launch = scale_0_1_percent_on_gpu;
      kernels.push_back(k);
    }
    for (const Kernel& k : broken_cuda_kernels()) kernels.push_back(k);
    for (const Kernel& k : unclean_cuda_kernels()) kernels.push_back(k);
#endif
    for (const Kernel& k : wrapping_kernels()) kernels.push_back(k);
    kernels.push_back(wrapped("drop_last_key", "fault: each sequence ends one key early", drop_last_key));
    kernels.push_back(
        wrapped("one_key_short", "fault: one key short of the longest, under a window", one_key_short));
    kernels.push_back(wrapped("segfaults_with_sinks", "fault: ends the process where there are sinks",
                              segfaults_with<kSinks>));
    kernels.push_back(wrapped("segfaults_with_seqused_q", "fault: ends the process where seqused_q is given",
                              segfaults_with<kSequsedQ>));
    kernels.push_back(
        wrapped("scale_0_1_percent", "fault: softmax_scale 0.1 % too large", scale_0_1_percent));
    kernels.push_back(wrapped("maximum_from_0", "fault: the running maximum starts at 0", maximum_from<0>));
    kernels.push_back(
        wrapped("maximum_from_minus_5e4", "fault: the running maximum starts at -5e4", maximum_from<-50000>));
    kernels.push_back(wrapped("ignores_alibi", "fault: no slope is added", ignores_alibi));
    kernels.push_back(wrapped("takes_slopes_of_sequence_0", "fault: all have the slopes of the first",
                              takes_slopes_of_sequence_0));
    kernels.push_back(wrapped("ignores_sinks", "fault: no sink is added", ignores_sinks));
    kernels.push_back(wrapped("unwritten_row", "fault: the last row of O is not written", unwritten_row));
    kernels.push_back(wrapped("nan_row", "fault: the last row of O is NaN", nan_row));
    kernels.push_back(wrapped("past_the_end", "fault: one element is written past O", past_the_end));
    kernels.push_back(
        wrapped("overwrites_input", "fault: the first element of Q is changed", overwrites_input));
    kernels.push_back(wrapped("wrong_when_timed", "fault: only the first launch is right", wrong_when_timed));
    kernels.push_back(wrapped("races", "fault: the first element is another one in each launch", races));
    kernels.push_back(wrapped("wrong_at_first", "fault: the first launch is wrong", wrong_at_first));
    kernels.push_back(
        wrapped("wrong_and_fails", "fault: the first launch is wrong, others fail", wrong_and_fails));
    kernels.push_back(wrapped("wrong_and_segfaults",
                              "fault: the first launch is wrong, the next one ends the process",
                              wrong_and_segfaults));
    kernels.push_back(
        wrapped("hangs_when_timed", "fault: only the first launch comes back", hangs_when_timed));
    kernels.push_back(
        wrapped("segfaults_when_timed", "fault: the second launch ends the process", segfaults_when_timed));
    kernels.push_back(wrapped("wrong_and_before_the_start",
                              "fault: a key too few, and a write before the LSE",
                              wrong_and_before_the_start));
    kernels.push_back(wrapped("throws_status", "fault: the launch fails", throws_status));
    kernels.push_back(wrapped("segfaults", "fault: reads where nothing is", segfaults));
    kernels.push_back(wrapped("aborts", "fault: calls abort", aborts));
    kernels.push_back(wrapped("exits", "fault: ends the process with code 3", exits));
    kernels.push_back(wrapped("is_killed", "fault: the process is killed", is_killed));
    kernels.push_back(wrapped("throws_int", "fault: throws what is no exception", throws_int));
    kernels.push_back(wrapped("hangs", "fault: never comes back", hangs));
    kernels.push_back(wrapped("overallocates", "fault: takes all memory", overallocates));
    for (std::size_t i = kernels.size() - 7; i < kernels.size(); ++i) kernels[i].supports = only_head_dim_24;
    kernels.push_back(wrapped("slow", "right, 300 ms a launch", slow));
    kernels.push_back(wrapped("refuses", "refuses every launch", good().launch));
    kernels.back().supports = refuses;
  }
  std::vector<const Kernel*> table(builtin_kernels().begin(), builtin_kernels().end());
  for (const Kernel& k : kernels) table.push_back(&k);
  table.push_back(&example::kAttention);
#if ATTNBENCH_FAULTS_CUDA
  table.push_back(&cuda_example::kAttention);
#endif
  return table;
}

}  // namespace attnbench::faults
