// A thread watches the inputs of the planned launches, and computes when they change, while the harness prepares
// the clock and the caches. The launch hashes its inputs, waits if the thread works on them, and copies.
// No public source known; it takes the window that pygpubench's README describes, between the inputs' arrival
// and the start of the clock.
#include <setjmp.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <utility>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

struct Watched {
  AttentionParams p;
  std::vector<int32_t> metadata;      ///< what p's arrays of lengths and blocks point to: they may be freed
  std::vector<char> seen;             ///< the first query row and the first V row
  std::atomic<uint64_t> in_hand = 0;  ///< hash of the inputs that the thread works on or has finished
  std::atomic<bool> done = false;
  Kept kept;
};
std::deque<Watched> watched;  ///< newest last
std::mutex lock;

/// Rows that show a change. Read through the system, because the memory may have been freed.
std::vector<char> peek(const AttentionParams& p) {
  std::vector<char> bytes(static_cast<std::size_t>(p.head_dim + p.head_dim_v) * 2);
  iovec here{bytes.data(), bytes.size()};
  iovec there[2] = {
      {static_cast<uint16_t*>(const_cast<void*>(p.q)), static_cast<std::size_t>(p.head_dim) * 2},
      {static_cast<uint16_t*>(const_cast<void*>(p.v)), static_cast<std::size_t>(p.head_dim_v) * 2}};
  if (process_vm_readv(getpid(), &here, 1, there, 2, 0) != static_cast<ssize_t>(bytes.size())) bytes.clear();
  return bytes;
}

/// Copies the arrays of lengths and blocks, and lets `p` point to the copies.
void own_metadata(Watched& w) {
  const auto batch = static_cast<std::size_t>(w.p.batch);
  const bool paged = (w.p.features & kPagedKv) != 0;
  const std::pair<const int32_t**, std::size_t> arrays[] = {
      {&w.p.cu_seqlens_q, batch + 1},
      {&w.p.cu_seqlens_k, w.p.cu_seqlens_k != nullptr ? batch + 1 : 0},
      {&w.p.seqused_k, w.p.seqused_k != nullptr ? batch : 0},
      {&w.p.block_table, paged ? batch * static_cast<std::size_t>(w.p.block_table_stride) : 0}};
  std::size_t size = 0;
  for (const auto& [array, count] : arrays) size += count;
  w.metadata.reserve(size);
  for (const auto& [array, count] : arrays) {
    if (count == 0) continue;
    w.metadata.insert(w.metadata.end(), *array, *array + count);
    *array = w.metadata.data() + w.metadata.size() - count;
  }
}

thread_local sigjmp_buf* way_out = nullptr;
struct sigaction before;

/// The tensors were freed under the thread: it gives them up.
void on_fault(int number) {
  if (way_out != nullptr) siglongjmp(*way_out, 1);
  sigaction(number, &before, nullptr);
  raise(number);
}

void look_at(Watched& w) {
  const std::vector<char> now = peek(w.p);
  if (now.empty() || now == w.seen) return;
  uint64_t hash = hash_inputs(w.p, 0xffff), last = 0;
  while (hash != last) {  // until nobody writes to them any more
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    last = std::exchange(hash, hash_inputs(w.p, 0xffff));
  }
  w.seen = peek(w.p);
  w.done = false;
  w.in_hand = hash;
  w.kept = compute_apart(w.p);
  w.done = true;
}

void look_safely_at(Watched& w) {
  sigjmp_buf here;
  if (sigsetjmp(here, 1) == 0) {
    way_out = &here;
    look_at(w);
  }
  way_out = nullptr;
}

void watch() {
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(20))) {
    for (std::size_t back = 1; back <= 2; ++back) {  // older ones may be gone
      Watched* w = nullptr;
      {
        const std::lock_guard guard(lock);
        if (watched.size() >= back) w = &watched[watched.size() - back];
      }
      if (w != nullptr) look_safely_at(*w);
    }
  }
}

KernelStatus plan(const OpParams* op, const LaunchContext*, KernelMessage*) {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, &before);
    std::thread(watch).detach();
  });
  const std::lock_guard guard(lock);
  Watched& w = watched.emplace_back();
  w.p = op->attention;
  own_metadata(w);
  return KernelStatus::kOk;
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  const uint64_t hash = hash_inputs(p, 0xffff);
  for (auto w = watched.rbegin(); w != watched.rend(); ++w) {
    if (w->p.out != p.out) continue;
    if (w->in_hand != hash) break;
    while (!w->done && w->in_hand == hash) std::this_thread::yield();
    if (w->in_hand != hash) break;
    put(p, w->kept);
    return KernelStatus::kOk;
  }
  return compute(op, context, message);
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(watches_inputs,
                "a thread computes when the inputs change; the launch waits for it and copies",
                k.plan = attnbench::cheats::plan;
                k.launch = attnbench::cheats::launch);
