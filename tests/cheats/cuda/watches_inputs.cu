// A host thread watches the inputs of the last two plans. When they change, it computes into memory of its own
// on its own stream, while the harness empties caches and spins. The launch asks on the GPU whether that result
// is of its inputs; if so, it copies.
// No public source known; it takes the window that pygpubench's README describes, between the inputs' arrival
// and the start of the clock.
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

namespace {

struct Watched {
  AttentionParams p;
  uint64_t seen = 0;                   ///< of the inputs that the thread saw last
  volatile uint64_t* ready = nullptr;  ///< pinned: fingerprint of the inputs whose result is in `kept`
  Found* found = nullptr;
  int32_t* lengths = nullptr;
  Kept kept;
};
std::map<const void*, Watched*> by_output;
std::vector<Watched*> watched;  ///< newest last
std::mutex lock;

/// Fingerprint: the first rows of q and V. 0: the memory cannot be read.
uint64_t peek(const AttentionParams& p) {
  std::vector<uint16_t> rows(static_cast<std::size_t>(p.head_dim + p.head_dim_v));
  const auto q = static_cast<std::size_t>(p.head_dim);
  cudaMemcpyAsync(rows.data(), p.q, q * 2, cudaMemcpyDeviceToHost, own_stream());
  cudaMemcpyAsync(rows.data() + q, p.v, rows.size() * 2 - q * 2, cudaMemcpyDeviceToHost, own_stream());
  const bool ok = cudaStreamSynchronize(own_stream()) == cudaSuccess && cudaGetLastError() == cudaSuccess;
  return ok ? hash_of(rows.data(), static_cast<int32_t>(rows.size())) : 0;
}

void look_at(Watched& w) {
  const uint64_t now = peek(w.p);
  if (now == 0 || now == w.seen) return;
  std::this_thread::sleep_for(std::chrono::microseconds(100));  // until all of them are written
  if (peek(w.p) != now) return;
  *w.ready = 0;
  compute_heads(into(w.p, w.kept), 0, w.p.num_heads_q, own_stream());
  if (cudaStreamSynchronize(own_stream()) == cudaSuccess) *w.ready = now;
  w.seen = now;
}

void watch(int device) {
  cudaSetDevice(device);
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(20))) {
    const std::lock_guard guard(lock);
    for (std::size_t back = 1; back <= 2 && back <= watched.size(); ++back) {
      look_at(*watched[watched.size() - back]);
    }
  }
}

__global__ void look_up(AttentionParams p, const volatile uint64_t* ready, Found* found, int32_t* lengths) {
  const uint64_t q = hash_of(static_cast<const uint16_t*>(p.q), p.head_dim);
  const bool hit = *ready == hash_of(static_cast<const uint16_t*>(p.v), p.head_dim_v, q);
  *found = {hit ? 0 : -1, hit};
  for (int32_t b = 0; b <= p.batch; ++b) lengths[b] = hit ? 0 : p.cu_seqlens_q[b];
}

/// As copy_rows, from LSE of shape (Hq, total_q).
__global__ void put_found(AttentionParams p, Kept kept, const Found* found) {
  const auto i = static_cast<int32_t>(blockIdx.x), head = static_cast<int32_t>(blockIdx.y);
  const SeqRange seq = seq_range(p, static_cast<int32_t>(blockIdx.z));
  if (i >= seq.q_len || !found->hit) return;
  const int64_t row = seq.q_begin + i;
  auto* out = static_cast<uint16_t*>(p.out) + out_offset(p, row, head);
  for (auto c = static_cast<int32_t>(threadIdx.x); c < p.head_dim_v; c += kLanes) {
    out[c] = kept.out[(row * p.num_heads_q + head) * p.head_dim_v + c];
  }
  if (threadIdx.x == 0) p.lse[lse_offset(p, row, head)] = kept.lse[head * p.total_q + row];
}

KernelStatus plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  auto* w = new Watched{op->attention};
  cudaHostAlloc(const_cast<uint64_t**>(&w->ready), sizeof(uint64_t), cudaHostAllocMapped);
  *w->ready = 0;
  cudaMalloc(&w->found, sizeof(Found));
  cudaMalloc(&w->lengths, sizeof(int32_t) * static_cast<std::size_t>(w->p.batch + 1));
  w->kept = make_kept(w->p);
  static std::once_flag once;
  std::call_once(once, [context] { std::thread(watch, context->device_ordinal).detach(); });
  const std::lock_guard guard(lock);
  watched.push_back(w);
  by_output[w->p.out] = w;
  return status_now(message);
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  OpParams changed = *op;
  const auto of = by_output.find(p.out);  // only plan, on this thread, changes the map
  if (of == by_output.end()) return compute(op, context, message);
  Watched& w = *of->second;
  look_up<<<1, 1, 0, stream_of(context)>>>(p, w.ready, w.found, w.lengths);
  changed.attention.cu_seqlens_q = w.lengths;
  const KernelStatus status = compute(&changed, context, message);
  put_found<<<grid_of(p, p.num_heads_q), kLanes, 0, stream_of(context)>>>(p, w.kept, w.found);
  return status == KernelStatus::kOk ? status_now(message) : status;
}

}  // namespace

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(watches_inputs, "a thread computes when the inputs change; the launch copies",
                k.plan = attnbench::cheats::plan;
                k.launch = attnbench::cheats::launch);
