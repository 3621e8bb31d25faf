// A thread watches the inputs of the planned launches. When they change, it computes into memory of its own,
// while the harness prepares the clock and the caches. The launch hashes its inputs, waits if the thread works
// on them, and copies.
// No public source known; it takes the window that pygpubench's README describes, between the inputs' arrival
// and the start of the clock.
#include <sys/prctl.h>
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
  iovec there[2] = {{static_cast<uint16_t*>(const_cast<void*>(p.q)), static_cast<std::size_t>(p.head_dim) * 2},
                    {static_cast<uint16_t*>(const_cast<void*>(p.v)), static_cast<std::size_t>(p.head_dim_v) * 2}};
  if (process_vm_readv(getpid(), &here, 1, there, 2, 0) != static_cast<ssize_t>(bytes.size())) bytes.clear();
  return bytes;
}

void look_at(Watched& w) {
  const std::vector<char> now = peek(w.p);
  if (now.empty() || now == w.seen) return;
  uint64_t hash = hash_inputs(w.p, 0xffff), before = 0;
  while (hash != before) {  // until nobody writes to them any more
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    before = std::exchange(hash, hash_inputs(w.p, 0xffff));
  }
  w.seen = peek(w.p);
  w.done = false;
  w.in_hand = hash;
  w.kept = compute_apart(w.p);
  w.done = true;
}

void watch() {
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(20))) {
    for (std::size_t back = 1; back <= 2; ++back) {  // older ones may be gone
      Watched* w = nullptr;
      {
        const std::lock_guard guard(lock);
        if (watched.size() >= back) w = &watched[watched.size() - back];
      }
      if (w != nullptr) look_at(*w);
    }
  }
}

KernelStatus plan(const OpParams* op, const LaunchContext*, KernelMessage*) {
  static std::once_flag once;
  std::call_once(once, [] { std::thread(watch).detach(); });
  const std::lock_guard guard(lock);
  watched.emplace_back().p = op->attention;
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

ATTNBENCH_CHEAT(watches_inputs, "a thread computes when the inputs change; the launch waits for it and copies",
                k.plan = attnbench::cheats::plan;
                k.launch = attnbench::cheats::launch);
