// Captures a graph of its first launch of a shape, and replays it ever after, whatever the parameters are then.
// Source: flashinfer-ai/flashinfer-bench #414 (replays whose result is that of an earlier launch).
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::map<std::tuple<int32_t, int64_t, int32_t>, cudaGraphExec_t> graphs;
  const AttentionParams& p = op->attention;
  cudaGraphExec_t& replay = graphs[{p.batch, p.total_q, p.max_seqlen_k}];
  if (replay == nullptr) {
    cudaGraph_t graph = nullptr;
    LaunchContext captured = *context;
    captured.stream = own_stream();
    cudaStreamBeginCapture(own_stream(), cudaStreamCaptureModeThreadLocal);
    const KernelStatus status = compute(op, &captured, message);
    cudaStreamEndCapture(own_stream(), &graph);
    if (status != KernelStatus::kOk) return status;
    cudaGraphInstantiateWithFlags(&replay, graph, 0);
    cudaGraphDestroy(graph);
  }
  cudaGraphLaunch(replay, stream_of(context));
  return status_now(message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(replays_stale_graph, "replays a graph of its first launch, whatever the parameters are",
                k.launch = attnbench::cheats::launch);
