#include "harness/session/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "harness/device/cpu_ceilings.h"
#include "harness/device/memory_limit.h"
#include "harness/device/sanitized.h"
#include "harness/error.h"
#include "harness/launch/last_words.h"
#include "harness/launch/launcher.h"
#include "harness/launch/runner.h"
#include "harness/results/json.h"
#include "harness/session/messages.h"
#include "harness/session/worker_pipe.h"

namespace attnbench {
namespace {

/// If the machine runs out of memory, the system kills this process first, not the supervisor or another
/// program.
void volunteer_for_oom() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const auto n = write(fd, "1000", 4);
  close(fd);
}

/// Limits this process to the memory that is free now. Linux would grant more and kill the process that
/// touches it. Not on a GPU, whose driver maps far more than it uses.
void bound_memory(const Device& device) {
  if (kSanitized || device.info().kind != DeviceKind::kCpu) return;
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return;
  static const rlim_t given = limit.rlim_cur;
  limit.rlim_cur = given;
  setrlimit(RLIMIT_DATA, &limit);  // the bound of the case before is none of this one
  // Starts the threads, whose stacks count in whole, though little of them is ever touched.
  turn_cores(std::max(device.info().threads, omp_get_max_threads()));
  long pages[6] = {};
  std::FILE* f = std::fopen("/proc/self/statm", "re");
  if (f == nullptr) return;
  const int n = std::fscanf(f, "%ld %ld %ld %ld %ld %ld", &pages[0], &pages[1], &pages[2], &pages[3],
                            &pages[4], &pages[5]);
  std::fclose(f);
  if (n != 6) return;
  const auto used = static_cast<rlim_t>(pages[5]) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  limit.rlim_cur = std::min(given, used + static_cast<rlim_t>(device.free_memory()));
  setrlimit(RLIMIT_DATA, &limit);
}

/// Returns the buffers of a case to the system when they are freed. Otherwise glibc keeps later buffers of
/// the size of the first large one, in a heap per thread of the reference.
void keep_no_large_buffers() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

const Kernel* find_kernel(KernelTable table, Op op, DeviceKind device, const std::string& name) {
  const auto found = select_kernels(table, op, device, {name});
  if (found.empty()) throw Error("no kernel " + name + " in this program", kExitFailure);
  return found.front();
}

class Server {
 public:
  Server(const SessionOptions& options, const std::vector<std::string>& runner)
      : options_(options), command_(runner) {}

  /// Returns false if the process must end.
  bool handle(const Message& m) {
    if (const auto it = m.find("open"); it != m.end()) return open(*it);
    if (m.contains("measure")) {
      tell_ceilings();
      return true;
    }
    return run(m.at("run"));
  }

 private:
  bool open(const Message& m) {
    try {
      const auto threads = m.at("threads").get<int>();
      const auto name = m.at("device").get<std::string>();
      expect_device(name);
      if (!command_.empty()) {
        runner_ = std::make_unique<Runner>(command_, memory_limit().bytes, threads, gpu_of(name));
        options_.table = runner_->kernels();
        options_.plugin_of = runner_->plugin_of();
      }
      device_ = open_device(name, threads, runner_.get());
    } catch (const DeviceError& e) {
      tell({{"failed", e.what()}});
      return false;
    }
    if (const Message& known = m.at("ceilings"); !known.is_null()) {
      device_->adopt_ceilings(ceilings_from_json(known));
      told_ = dump_json(known);
    }
    DeviceInfo info = device_->info();
    info.trust = runner_ ? "runner" : "worker";
    if (runner_) info.confinement = runner_->confinement();
    return tell({{"ready", {{"device", device_to_json(info)}}}});
  }

  void tell_ceilings() {
    const Message now = ceilings_to_json(device_->ceilings(ceiling_dtypes()));
    if (dump_json(now) == told_) return;
    told_ = dump_json(now);
    tell({{"ceilings", now}});
  }

  bool run(const Message& m) {
    const Case item = case_from_message(m);
    const WorkItem work{
        &item,
        find_kernel(options_.table, item.params.op, device_->info().kind, m.at("kernel").get<std::string>()),
        m.at("index").get<int64_t>(), m.at("experiments").get<bool>()};
    SessionOptions options = options_;
    if (const Message& rows_seed = m.at("alone"); !rows_seed.is_null()) {
      options.time = false;
      options.timing.order_seed = rows_seed.get<uint64_t>();
    }
    bound_memory(*device_);
    if (runner_ && device_->info().kind == DeviceKind::kCpu) runner_->limit_memory(device_->free_memory());
    bool lost = false;
    const std::string in_hand = in_hand_text(work, options_);
    set_in_hand(in_hand);
    const Record record = run_item(work, *device_, options, lost, {}, [&](const Reached& reached) {
      if (reached.phase == Phase::kInvariant)
        set_in_hand("invariant " + reached.invariant + " of " + in_hand);
      tell(phase_message(reached));
      if (reached.wrong != nullptr)
        tell({{"wrong", record_to_json(wrong_record(work, device_->info().name, options, *reached.wrong))}});
    });
    set_in_hand("");
    if (runner_) runner_->end_leftovers();
    std::fflush(nullptr);  // what a kernel printed belongs to this case
    if (record.time && !lost && options_.wants_ceilings()) tell_ceilings();  // perhaps measured again
    return tell({{"record", record_to_json(record)}, {"lost", lost}}) && !lost;
  }

  SessionOptions options_;
  std::vector<std::string> command_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Device> device_;
  std::string told_;  ///< ceilings that the supervisor has
};

}  // namespace

int serve_messages(const std::function<bool(const Message&)>& handle) {
  // Ctrl-C reaches the whole process group. The supervisor decides when to stop; if it ends, the pipe closes.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  tell_crashes(AfterLastWords::kSignal);
  tell_where();
  volunteer_for_oom();
  keep_no_large_buffers();
  take_worker_pipes();
  while (const auto request = next_request()) {
    // Not by return: the destructors may hang or crash if the device is lost.
    if (!handle(*request)) _exit(0);
  }
  return 0;
}

int serve_cases(const SessionOptions& options, const std::vector<std::string>& runner) {
  Server server(options, runner);
  return serve_messages([&](const Message& m) { return server.handle(m); });
}

}  // namespace attnbench
