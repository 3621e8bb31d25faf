// A stand-in for libnccl.so.2 whose ranks are buffers of this process's memory. Like NCCL it does a group's
// operations when the group ends. Where NCCL would wait for ever, because a rank's part is missing, it refuses.
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/contract/dtype.h"

namespace {

using attnbench::DType;

constexpr int kInvalidArgument = 4, kInvalidUsage = 5;

struct Team;
struct Communicator {
  Team* team;
  int rank;
};
enum class Kind { kAllGather, kReduceScatter, kSend, kReceive };
struct Operation {
  Kind kind;
  const void* from;
  void* to;
  std::size_t count;
  int type;
  int peer;
};
struct Team {
  std::deque<Communicator> communicators;
  std::vector<std::deque<Operation>> pending;  ///< by rank
};

std::vector<std::unique_ptr<Team>>& teams() {
  static std::vector<std::unique_ptr<Team>> all;
  return all;
}
int depth = 0;

std::size_t size_of(int type) { return type == 0 ? 1 : type == 7 ? 4 : 2; }
DType dtype_of(int type) { return type == 9 ? DType::kBf16 : type == 6 ? DType::kFp16 : DType::kFp32; }

/// Does one collective, the first pending operation of each rank. False if the ranks do not agree on it.
bool collective(Team& t) {
  std::vector<Operation> ops;
  for (auto& of_rank : t.pending) {
    if (of_rank.empty()) return false;
    ops.push_back(of_rank.front());
    of_rank.pop_front();
  }
  const std::size_t bytes = ops[0].count * size_of(ops[0].type);
  for (const Operation& o : ops) {
    if (o.kind != ops[0].kind || o.count != ops[0].count || o.type != ops[0].type) return false;
  }
  for (const Operation& to : ops) {
    for (std::size_t r = 0; r < ops.size() && ops[0].kind == Kind::kAllGather; ++r)
      std::memcpy(static_cast<char*>(to.to) + r * bytes, ops[r].from, bytes);
  }
  if (ops[0].kind == Kind::kAllGather) return true;
  const DType type = dtype_of(ops[0].type);
  for (std::size_t r = 0; r < ops.size(); ++r) {
    for (std::size_t i = 0; i < ops[0].count; ++i) {
      const auto at = static_cast<std::int64_t>(r * ops[0].count + i);
      float sum = 0;
      for (const Operation& from : ops)
        sum = attnbench::round_to(type, sum + attnbench::load_float(type, from.from, at));
      attnbench::store_float(type, ops[r].to, static_cast<std::int64_t>(i), sum);
    }
  }
  return true;
}

/// Does all sends and receives. False if one has no partner.
bool messages(Team& t) {
  for (std::size_t r = 0; r < t.pending.size(); ++r) {
    for (const Operation& to : t.pending[r]) {
      if (to.kind != Kind::kReceive) continue;
      auto& sender = t.pending[static_cast<std::size_t>(to.peer)];
      auto from = sender.begin();
      while (from != sender.end() &&
             (from->kind != Kind::kSend || from->peer != static_cast<int>(r) || from->from == nullptr))
        ++from;
      if (from == sender.end() || from->count != to.count) return false;
      std::memcpy(to.to, from->from, to.count * size_of(to.type));
      from->from = nullptr;  // it has been received
    }
  }
  for (auto& of_rank : t.pending) {
    for (const Operation& o : of_rank) {
      if (o.kind == Kind::kSend && o.from != nullptr) return false;
    }
    of_rank.clear();
  }
  return true;
}

bool finish(Team& t) {
  for (;;) {
    bool any = false;
    for (const auto& of_rank : t.pending) any = any || !of_rank.empty();
    if (!any) return true;
    const auto& first = t.pending.front();
    const bool is_message =
        !first.empty() && (first.front().kind == Kind::kSend || first.front().kind == Kind::kReceive);
    if (is_message ? !messages(t) : !collective(t)) {
      for (auto& of_rank : t.pending) of_rank.clear();
      return false;
    }
  }
}

int add(void* communicator, const Operation& o) {
  auto* c = static_cast<Communicator*>(communicator);
  if (depth == 0) return kInvalidUsage;
  c->team->pending[static_cast<std::size_t>(c->rank)].push_back(o);
  return 0;
}

}  // namespace

extern "C" {
int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
const char* ncclGetErrorString(int result) {
  return result == kInvalidArgument ? "invalid argument" : "invalid usage";
}
int ncclCommInitAll(void** communicators, int count, const int*) {
  if (count < 2) return kInvalidArgument;
  Team* const team = teams().emplace_back(std::make_unique<Team>()).get();
  team->pending.resize(static_cast<std::size_t>(count));
  for (int r = 0; r < count; ++r) {
    team->communicators.push_back({team, r});
    communicators[r] = &team->communicators.back();
  }
  return 0;
}
int ncclCommDestroy(void*) { return 0; }
int ncclGroupStart() {
  ++depth;
  return 0;
}
int ncclGroupEnd() {
  if (--depth > 0) return 0;
  for (const auto& t : teams()) {
    if (!finish(*t)) return kInvalidUsage;
  }
  return 0;
}
int ncclAllGather(const void* from, void* to, std::size_t count, int type, void* communicator, void*) {
  return add(communicator, {Kind::kAllGather, from, to, count, type, 0});
}
int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int operation,
                      void* communicator, void*) {
  if (operation != 0) return kInvalidArgument;
  return add(communicator, {Kind::kReduceScatter, from, to, count, type, 0});
}
int ncclSend(const void* from, std::size_t count, int type, int peer, void* communicator, void*) {
  return add(communicator, {Kind::kSend, from, nullptr, count, type, peer});
}
int ncclRecv(void* to, std::size_t count, int type, int peer, void* communicator, void*) {
  return add(communicator, {Kind::kReceive, nullptr, to, count, type, peer});
}
}
