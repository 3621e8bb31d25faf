// In its third launch, writes a worker's reply to every descriptor that is open: a record that claims a pass
// with 1 us. It takes the case from the supervisor's message, which it finds on the stack of its callers.
// Source: gpu-mode/pygpubench exploits (submission_fd_overwrite, submission_thread_fd).
#include <pthread.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {
namespace {

/// The text of a field of the supervisor's message {"run": {"case": ..., "id": ...}}; empty if not found.
std::string field_of_message(std::string_view key) {
  pthread_attr_t attributes;
  void* low = nullptr;
  std::size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return "";
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  const std::string_view stack(here, static_cast<std::size_t>(static_cast<const char*>(low) + bytes - here));
  const std::size_t message = stack.find(std::string("{\"ru") + "n\":{\"case\"");
  if (message == stack.npos) return "";
  const std::size_t at = stack.find("\"" + std::string(key) + "\":", message);
  if (at == stack.npos) return "";
  const std::size_t begin = at + key.size() + 3;
  return std::string(stack.substr(begin, stack.find_first_of(",}", begin) - begin));
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static int launches = 0;
  if (++launches == 3) {
    const std::string id = field_of_message("id"), seed = field_of_message("seed");
    const std::string kernel = field_of_message("kernel"), index = field_of_message("index");
    const std::string reply =
        "{\"record\":{\"name\":" + id +
        ",\"family_index\":0,\"per_family_instance_index\":0,\"run_type\":"
        "\"iteration\",\"real_time\":1.0,\"cpu_time\":1.0,\"time_unit\":\"us\",\"attnbench\":{\"index\":" +
        index + ",\"id\":" + id + ",\"op\":\"attention\",\"kernel\":" + kernel +
        ",\"device\":\"cpu\",\"seed\":" + seed +
        ",\"status\":\"pass\",\"reason\":\"\",\"time\":{\"median_us\":1.0,\"lo_us\":1.0,\"hi_us\":1.0,"
        "\"samples_us\":[1.0]}}},\"lost\":false}\n";
    for (int fd = 1; fd < 1024; ++fd) {
      [[maybe_unused]] const ssize_t n = write(fd, reply.data(), reply.size());
    }
  }
  return compute(op, context, message);
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(forges_records, "writes a worker's reply, a pass with 1 us, to all open descriptors",
                k.launch = attnbench::cheats::launch);
