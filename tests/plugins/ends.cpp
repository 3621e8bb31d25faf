// A right kernel that ends or stops its process as the environment says: ATTNBENCH_TEST_END="CALL WAY". CALL
// is supports, workspace_bytes, plan, launch, numerics, tile, opening, loading (opening in a worker),
// commanding (opening in a process whose command line is not its parent's and has no --worker) or closing.
// WAY is segv, abort, overflow, exit, leave (_exit(0)), throw, hang, orphan (hangs, and so does a child,
// whose pid goes to the file ATTNBENCH_TEST_PID), print (8 MB on both streams), steer (what a terminal
// obeys), fork (the child goes on too), leak (a started program gets the descriptors), forge (writes a
// worker's reply to descriptors 3 to 31), forge_all (to 3 to 1023) or forge_always (a thread does so all the
// time), tell (prints its process), store (writes to q), past (reads a byte behind the last row of K, and drops it),
// later (NaN; later launches do the same as past), before (reads the byte before K), lengths (reads behind the end of cu_seqlens_k), beyond (writes behind O), write (a file in the working folder, and says whether that
// was possible), free (says whether it can leave its session, take the cores or be continued by a timer), keep (the softmax_scale of the first launch), daemon (a process of a session of its own, whose pid goes to the file ATTNBENCH_TEST_PID), or it leaves something changed: round (rounds down), team (in OpenMP threads),
// flush (to zero), umask, folder, signals, limit, ask (wants a workspace of 2^50 bytes);
// for numerics also less (P in bf16, sums in fp16). It happens only on head dimension 24, or for the
// number of query heads in ATTNBENCH_TEST_HEADS: "8", or "8 after 400" such calls.
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <cerrno>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "kernels/contract/plugin.h"
#undef ATTNBENCH_PLUGIN
#define ATTNBENCH_PLUGIN(...) static_assert(true)  // the example without its table
#include "kernels/examples/cpu/kernel.cpp"         // NOLINT(bugprone-suspicious-include)

namespace attnbench::ends {

#ifdef TOO
constexpr const char* kName = "too";
#else
constexpr const char* kName = "example";
#endif

volatile int depth = 1;
int overflow(volatile int* outer) {  // NOLINT(misc-no-recursion)
  volatile int here[4096] = {*outer};
  if (depth < 0) return 0;  // never
  return overflow(here) + here[0];
}

constexpr const char* kReply =
    "{\"record\":{\"name\":\"x\",\"attnbench\":{\"status\":\"pass\"}},\"lost\":false}\n";

void forge(int end) {
  for (int fd = 3; fd < end; ++fd) [[maybe_unused]] const auto n = write(fd, kReply, std::strlen(kReply));
}

/// Whether a child leaves its session by a call of another architecture, hides other work beside it by a real-time
/// priority, or gets a timer that continues it while it is stopped.
bool frees_itself() {
  const pid_t child = fork();
  if (child == 0) {
#ifdef __x86_64__
    long setsid_of_i386 = 66;
    __asm__ volatile("int $0x80" : "+a"(setsid_of_i386) : : "memory", "r8", "r9", "r10", "r11");
#endif
    sched_param least{};
    least.sched_priority = 1;
    sched_setscheduler(0, SCHED_FIFO, &least);
    sigevent continues{};
    continues.sigev_notify = SIGEV_SIGNAL;
    continues.sigev_signo = SIGCONT;
    timer_t timer{};
    const bool timed = timer_create(CLOCK_MONOTONIC, &continues, &timer) == 0;
    _exit(timed || getsid(0) == getpid() || sched_getscheduler(0) == SCHED_FIFO ? 1 : 0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

void print_megabytes() {
  for (int i = 0; i < 100'000; ++i) {
    std::fputs(kReply, stdout);
    std::fputs(kReply, stderr);
  }
}

/// Starts a program that prints which pipes it has above the standard streams.
void leak() {
  [[maybe_unused]] const int code = std::system(
      "for f in /proc/self/fd/*; do case $(readlink $f) in pipe:*) echo \"pipe ${f##*/}\";; esac; done");
}

/// Leaves the thread or the process in another state.
void change(const std::string& what) {
  if (what == "round") std::fesetround(FE_DOWNWARD);
  if (what == "team") {
#pragma omp parallel
    if (omp_get_thread_num() > 0) std::fesetround(FE_DOWNWARD);
  }
#ifdef __x86_64__
  if (what == "flush") _mm_setcsr(_mm_getcsr() | 0x8000);
#endif
  if (what == "umask") umask(0777);
  if (what == "folder") [[maybe_unused]]
    const int failed = chdir("/");
  if (what == "signals") {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
  }
  rlimit limit{};
  if (what == "limit" && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    --limit.rlim_cur;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

void maybe_end(const char* call) {
  const char* told = std::getenv("ATTNBENCH_TEST_END");
  const std::string text = told == nullptr ? "" : told;
  const std::size_t space = text.find(' ');
  if (text.substr(0, space) != call) return;
  const std::string way = text.substr(space + 1);
  change(way);
  if (way == "tell") std::fprintf(stderr, "%s in process %d\n", kName, getpid());
  volatile int zero = 0;
  if (way == "segv") std::raise(SIGSEGV);
  if (way == "abort") std::abort();
  if (way == "overflow") overflow(&zero);
  if (way == "exit") std::exit(0);
  if (text.starts_with("closing")) std::fputs("closing\n", stderr);
  if (way == "leave") _exit(0);
  if (way == "throw") throw 42;
  if (way == "print") print_megabytes();
  if (way == "steer") std::fputs("A\033[2J\rB\302\2331mC\342\200\256D\n", stderr);
  if (way == "fork") fork();
  if (way == "orphan" && fork() == 0) {
    std::ofstream(std::getenv("ATTNBENCH_TEST_PID")) << getpid() << std::endl;
    for (;;) pause();
  }
  if (way == "leak") leak();
  if (way == "forge_always") {
    std::thread([] {
      for (;; std::this_thread::sleep_for(std::chrono::microseconds(200))) forge(1024);
    }).detach();
  }
  if (way == "forge") forge(32);
  if (way == "forge_all") forge(1024);
  while (way == "hang" || way == "orphan") std::this_thread::sleep_for(std::chrono::hours(1));
}

/// What needs the launch's parameters.
void maybe_reach_out(const char* call, const AttentionParams& p) {
  const char* told = std::getenv("ATTNBENCH_TEST_END");
  const std::string text = told == nullptr ? "" : told, way = text.substr(text.find(' ') + 1);
  if (text.substr(0, text.find(' ')) != call) return;
  const char* k = static_cast<const char*>(p.k);
  volatile char dropped = 0;
  if (way == "past" && p.cu_seqlens_k != nullptr) dropped = k[p.cu_seqlens_k[p.batch] * p.k_stride_token * 2];
  static int launches = 0;
  if (way == "later" && launches++ > 0) dropped = k[p.cu_seqlens_k[p.batch] * p.k_stride_token * 2];
  if (way == "before") dropped = k[-1];
  if (way == "lengths" && p.cu_seqlens_k != nullptr) dropped = static_cast<char>(p.cu_seqlens_k[p.batch + 1]);
  if (way == "beyond") static_cast<volatile char*>(p.out)[p.total_q * p.out_stride_token * 2] = dropped;
  if (way == "store") *static_cast<volatile char*>(const_cast<void*>(p.q)) = 1;
  if (way == "write") std::fputs(std::ofstream("written_by_a_kernel") << 1 ? "wrote\n" : "refused\n", stderr);
  if (way == "free") std::fputs(frees_itself() ? "it is free\n" : "it is held\n", stderr);
  if (way != "daemon") return;
  if (fork() != 0) {  // it is stopped with its parent: waits until it has told its pid
    for (int pid = 0; !(std::ifstream(std::getenv("ATTNBENCH_TEST_PID")) >> pid);) usleep(1000);
    return;
  }
  setsid();
  if (fork() != 0) _exit(0);
  std::ofstream(std::getenv("ATTNBENCH_TEST_PID"), std::ios::app)
      << getpid() << std::endl;  // a later one may be stopped before it tells
  for (;;) pause();
}

void maybe_end(const char* call, const OpParams* op) {
  const char* heads = std::getenv("ATTNBENCH_TEST_HEADS");
  const AttentionParams& p = op->attention;
  if (p.head_dim == 24) maybe_reach_out(call, p);
  if (heads != nullptr ? p.num_heads_q != std::atoi(heads) : p.head_dim != 24) return;
  static int calls = 0;
  const char* after = heads != nullptr ? std::strstr(heads, " after ") : nullptr;
  if (after == nullptr || ++calls > std::atoi(after + 7)) maybe_end(call);
}

bool declares_less(const OpParams* op) {
  const char* told = std::getenv("ATTNBENCH_TEST_END");
  return told != nullptr && std::strcmp(told, "numerics less") == 0 && op->attention.head_dim == 24;
}

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  maybe_end("supports", op);
  return example::kAttention.supports(op, context, message);
}

std::size_t workspace_bytes(const OpParams* op, const LaunchContext*) {
  maybe_end("workspace_bytes", op);
  const char* told = std::getenv("ATTNBENCH_TEST_END");
  const bool asks = told != nullptr && std::strcmp(told, "workspace_bytes ask") == 0;
  return asks && op->attention.head_dim == 24 ? std::size_t{1} << 50 : 0;
}

KernelStatus plan(const OpParams* op, const LaunchContext*, KernelMessage*) {
  maybe_end("plan", op);
  return KernelStatus::kOk;
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  OpParams params = *op;
  static const float kept = op->attention.softmax_scale;
  const char* told = std::getenv("ATTNBENCH_TEST_END");
  const std::string text = told == nullptr ? "" : told;
  const bool forks = text == "launch fork";  // afterwards: a child that still writes is as wrong as it looks
  if (!forks) maybe_end("launch", op);
  if (text == "launch keep") params.attention.softmax_scale = kept;
  if (text == "launch later" && op->attention.head_dim == 24) params.attention.softmax_scale = NAN;
  const KernelStatus status = example::kAttention.launch(&params, context, message);
  if (forks) maybe_end("launch", op);
  return status;
}

Numerics numerics(const OpParams* op) {
  maybe_end("numerics", op);
  Numerics n = example::kAttention.numerics(op);
  if (declares_less(op)) {
    n.p_type = DType::kBf16;
    n.acc_type = DType::kFp16;
  }
  return n;
}

Tile tile(const OpParams* op) {
  maybe_end("tile", op);
  return {};
}

const Kernel kAttention = [] {
  Kernel k = example::kAttention;
  k.summary = "clears the screen:\033[2J";
  k.name = kName;
  k.supports = supports;
  k.workspace_bytes = workspace_bytes;
  k.plan = plan;
  k.launch = launch;
  k.numerics = numerics;
  k.tile = tile;
  return k;
}();

constexpr const Kernel* kKernels[] = {&kAttention};

/// Command line of a process, with a zero byte after each word.
std::string words_of(const std::string& process) {
  std::ifstream in("/proc/" + process + "/cmdline");
  return {std::istreambuf_iterator<char>(in), {}};
}

const struct Closing {
  Closing() {
    const std::string words = words_of("self");
    const bool worker = words.find(std::string("\0--worker\0", 10)) != std::string::npos;
    maybe_end("opening");
    if (worker) maybe_end("loading");
    if (!worker && words != words_of(std::to_string(getppid()))) maybe_end("commanding");
  }
  ~Closing() { maybe_end("closing"); }
} closing;

}  // namespace attnbench::ends

extern "C" const attnbench::Plugin attnbench_plugin;
const attnbench::Plugin attnbench_plugin = attnbench::plugin_of(attnbench::ends::kKernels);
