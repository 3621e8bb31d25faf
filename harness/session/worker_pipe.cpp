#include "harness/session/worker_pipe.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>

#include "harness/results/json.h"

namespace attnbench {
namespace {

/// The lowest number of the pipes. Few programs have so many files open, and a scan of the usual numbers ends
/// before it.
constexpr int kHigh = 200;

struct Pipes {
  int in = -1, out = -1;
  pid_t owner = -1;
  LineBuffer lines;
};
Pipes g_pipes;

/// The descriptor, moved up and closed by exec(). If the limit of open files is low, it stays where it is.
int moved_up(int fd) {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kHigh);
  if (high < 0) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
  }
  close(fd);
  return high;
}

/// A child that a kernel forks must neither answer nor take the messages of its parent.
extern "C" void close_worker_pipes() {
  for (int* fd : {&g_pipes.in, &g_pipes.out}) {
    close(*fd);
    *fd = -1;
  }
}

}  // namespace

void take_worker_pipes() {
  if (g_pipes.in >= 0) return;
  g_pipes.in = moved_up(kWorkerIn);
  g_pipes.out = moved_up(kWorkerOut);
  g_pipes.owner = getpid();
  pthread_atfork(nullptr, nullptr, close_worker_pipes);
}

std::optional<Message> next_request() {
  char buffer[1 << 16];
  for (;;) {
    if (const auto line = g_pipes.lines.next()) return Message::parse(*line);
    const ssize_t n = read(g_pipes.in, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    g_pipes.lines.add(buffer, static_cast<std::size_t>(n));
  }
}

bool tell(const Message& answer) {
  if (getpid() != g_pipes.owner) return false;  // a child that was not made by fork()
  return write_line(g_pipes.out, dump_json(answer));
}

}  // namespace attnbench
