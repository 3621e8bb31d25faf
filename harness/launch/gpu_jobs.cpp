#include "harness/launch/gpu_jobs.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "harness/launch/launcher.h"

namespace attnbench {

GpuJobs::GpuJobs(int gpu) : device_(open_device(fmt::format("cuda:{}", gpu))) { reserve_gpu_pages(); }

void GpuJobs::run(std::span<Runner::Request> launches) {
  for (Runner::Request& r : launches) {
    if (r.call == RunnerCall::kReplay) {
      const Graph& graph = graphs_.at(static_cast<std::size_t>(r.graph));
      graph.replay();
      launched_.insert(launched_.end(), graph.launched.begin(), graph.launched.end());
      continue;
    }
    ReturnedOutputs returned{};
    launch_(r, returned);
    if (r.context.returned != nullptr) launched_.push_back({r.params.attention, returned});
  }
}

void GpuJobs::take_outputs() {
  for (const Launched& l : std::exchange(launched_, {})) {
    for (const ReturnedTensor& t : returned_tensors(l.params, l.returned)) device_->take_returned(t);
  }
}

void GpuJobs::time(const GpuJob& job, std::span<Runner::Request> launches, Runner::Reply& reply) {
  std::vector<WatchedOutput> outputs(job.output.begin(), job.output.begin() + job.outputs);
  for (WatchedOutput& o : outputs) {
    o.tensor.data = second_place(o.tensor.data);
    o.tensor.table = static_cast<const uint8_t*>(second_place(o.tensor.table));
    o.tokens = static_cast<const int64_t*>(second_place(o.tokens));
  }
  std::vector<LateSigns> late(job.signs.begin(), job.signs.begin() + job.late);
  for (LateSigns& s : late) {
    s.tensor.data = second_place(s.tensor.data);
    s.tensor.table = static_cast<const uint8_t*>(second_place(s.tensor.table));
  }
  LaunchWatch watch{outputs, late, job.seed, nullptr};
  if (job.returns) watch.take_outputs = [this] { take_outputs(); };
  device_->reset_cache_policy();
  const Sample s = device_->time_launch([&] { run(launches); }, job.cache, job.watched ? &watch : nullptr);
  reply.us = s.us;
  reply.enqueue_us = s.enqueue_us;
  reply.host_bound = s.host_bound;
  reply.watch = s.watch;
}

void GpuJobs::count(const GpuJob& job, std::span<Runner::Request> launches, Runner::Reply& reply) {
  const auto counted = launches.first(static_cast<std::size_t>(job.launches));
  const auto prepare = launches.subspan(counted.size());
  const CounterReading r = device_->count_launch([&] { run(counted); }, [&] { run(prepare); }, job.cache);
  reply.counters = {r.dram_read_bytes.value_or(-1), r.dram_write_bytes.value_or(-1),
                    r.tensor_active_percent.value_or(-1), r.l2_hit_percent.value_or(-1)};
  reply.number = r.launches;
  std::snprintf(reply.text.data(), reply.text.size(), "%s", r.reason.c_str());
}

void GpuJobs::answer(const Runner::Request& request, const GpuJob& job,
                     std::vector<Runner::Request>& launches, Runner::Reply& reply) {
  switch (request.call) {
    case RunnerCall::kTime:
      time(job, launches, reply);
      break;
    case RunnerCall::kCount:
      count(job, launches, reply);
      break;
    case RunnerCall::kCapture: {
      Graph graph;
      graph.replay = device_->capture_graph([&] { run(launches); });
      graph.launched = std::exchange(launched_, {});
      reply.number = static_cast<int32_t>(graphs_.size());
      graphs_.push_back(std::move(graph));
      return;
    }
    case RunnerCall::kGo:
      enqueue_wait(stream(), second_place(job.hold), job.ticket);
      for (Runner::Request& r : launches) {
        run({&r, 1});
        take_outputs();
      }
      return;
    case RunnerCall::kReplay: {
      Runner::Request replay = request;
      run({&replay, 1});
      break;
    }
    default:
      break;
  }
  take_outputs();
  device_->synchronize();
}

}  // namespace attnbench
