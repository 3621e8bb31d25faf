// What a judge asks of its runner on a GPU.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "harness/launch/runner_messages.h"

namespace attnbench {
namespace {

/// A launch that has not returned by then waits for the GPU, which waits for the judge.
constexpr int kMostEnqueueMs = 1000;

GpuJob watched_job(CacheMode cache, const LaunchWatch* watch) {
  GpuJob job{.cache = cache, .watched = watch != nullptr};
  if (watch == nullptr) return job;
  if (watch->outputs.size() > job.output.size() || watch->late.size() > job.signs.size())
    throw std::logic_error("too many tensors to watch");
  job.seed = watch->seed;
  job.returns = watch->take_outputs != nullptr;
  job.outputs = static_cast<int32_t>(watch->outputs.size());
  job.late = static_cast<int32_t>(watch->late.size());
  std::ranges::copy(watch->outputs, job.output.begin());
  std::ranges::copy(watch->late, job.signs.begin());
  return job;
}

}  // namespace

std::vector<Runner::Request> Runner::noted(const Launches& launches) {
  if (!launches) return {};
  go_.emplace();
  try {
    launches();
  } catch (...) {
    go_.reset();
    throw;
  }
  return *std::exchange(go_, std::nullopt);
}

Runner::Reply Runner::do_job(RunnerCall what, GpuJob job, const Launches& launches, const Launches& prepare,
                             const std::function<void()>& when_sent) {
  const std::vector<Request> requests = noted(launches), before = noted(prepare);
  job.launches = static_cast<int32_t>(requests.size());
  job.prepare = static_cast<int32_t>(before.size());
  const Request head{what, requests.empty() ? 0 : requests.front().kernel};
  if (!runs_) resume();
  send_request(head);
  send(&job, sizeof job);
  for (const auto* list : {&requests, &before}) {
    for (const Request& r : *list) send(&r, sizeof r);
  }
  if (when_sent) when_sent();
  Reply reply;
  receive(&reply, sizeof reply);
  return answered(reply, head);
}

Sample Runner::time_launch(const Launches& launches, CacheMode cache, const LaunchWatch* watch) {
  const Reply r = do_job(RunnerCall::kTime, watched_job(cache, watch), launches);
  Sample sample;
  sample.us = r.us;
  sample.enqueue_us = r.enqueue_us;
  sample.host_bound = r.host_bound;
  sample.watch = r.watch;
  return sample;
}

CounterReading Runner::count_launch(const Launches& launches, const Launches& prepare, CacheMode cache) {
  const Reply r = do_job(RunnerCall::kCount, {.cache = cache}, launches, prepare);
  CounterReading reading;
  std::optional<double>* const counted[] = {&reading.dram_read_bytes, &reading.dram_write_bytes,
                                            &reading.tensor_active_percent, &reading.l2_hit_percent};
  for (std::size_t i = 0; i < r.counters.size(); ++i) {
    if (r.counters[i] >= 0) *counted[i] = r.counters[i];
  }
  reading.launches = r.number;
  reading.reason = r.text.data();
  return reading;
}

std::function<void()> Runner::capture_graph(const Launches& launches) {
  Request replay{RunnerCall::kReplay};
  replay.graph = do_job(RunnerCall::kCapture, {}, launches).number;
  return [this, replay] { call(replay); };
}

void Runner::pass_on() {
  const Request request{RunnerCall::kSynchronize};
  calls({&request, 1});
}

Go Runner::time_go(const Launches& launches, const GpuHold& hold) {
  bool waited = false;
  std::chrono::steady_clock::time_point begin;
  const auto end_hold = [&] {
    hold.end();
    begin = std::chrono::steady_clock::now();
  };
  const auto look = [&] {
    pollfd answer{socket_, POLLIN, 0};
    waited = poll(&answer, 1, kMostEnqueueMs) == 0;
    if (waited) end_hold();
  };
  do_job(RunnerCall::kGo, {.hold = hold.at, .ticket = hold.ticket}, launches, {}, look);
  if (!waited) end_hold();  // the process is stopped
  pass_on();                // and wait
  const double us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  return {waited ? 0 : us, us, 0};
}

}  // namespace attnbench
