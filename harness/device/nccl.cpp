#include "harness/device/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace attnbench {
namespace {

// The few declarations of nccl.h that are used, so that its package is not needed. Their ABI is that of
// NCCL 2.10 (bf16) and later.
using Result = int;  // 0: success
using Communicator = void*;
using Stream = void*;
constexpr int kInt8 = 0, kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9;
constexpr int kSum = 0;
constexpr int kLeastVersion = 21000;

int type_of(DType t) { return t == DType::kBf16 ? kBfloat16 : t == DType::kFp16 ? kFloat16 : kFloat32; }

}  // namespace

struct Nccl::Api {
  void* library = nullptr;
  Result (*get_version)(int*) = nullptr;
  const char* (*error_string)(Result) = nullptr;
  Result (*init_all)(Communicator*, int, const int*) = nullptr;
  Result (*destroy)(Communicator) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*all_gather)(const void*, void*, std::size_t, int, Communicator, Stream) = nullptr;
  Result (*reduce_scatter)(const void*, void*, std::size_t, int, int, Communicator, Stream) = nullptr;
  Result (*send)(const void*, std::size_t, int, int, Communicator, Stream) = nullptr;
  Result (*receive)(void*, std::size_t, int, int, Communicator, Stream) = nullptr;

  /// The first function that the library lacks; null: it has all.
  const char* find_all() {
    const char* missing = nullptr;
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && missing == nullptr) missing = name;
    };
    find("ncclGetVersion", get_version);
    find("ncclGetErrorString", error_string);
    find("ncclCommInitAll", init_all);
    find("ncclCommDestroy", destroy);
    find("ncclGroupStart", group_start);
    find("ncclGroupEnd", group_end);
    find("ncclAllGather", all_gather);
    find("ncclReduceScatter", reduce_scatter);
    find("ncclSend", send);
    find("ncclRecv", receive);
    return missing;
  }
};

std::vector<std::string> Nccl::usual_libraries() { return {"libnccl.so.2", "libnccl.so"}; }

std::unique_ptr<Nccl> Nccl::open(std::span<const Rank> ranks, const std::vector<std::string>& libraries,
                                 std::string& why_not) {
  auto api = std::make_unique<Api>();
  for (const std::string& name : libraries) {
    api->library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (api->library != nullptr) break;
  }
  if (api->library == nullptr) {
    why_not = fmt::format(
        "NCCL was not found ({}): install it (Debian: libnccl2), or put the folder of the one that a Python "
        "package brought (nvidia/nccl/lib) into LD_LIBRARY_PATH; dcp_combine: fused needs none",
        libraries.front());
    return nullptr;
  }
  int version = 0;
  const char* missing = api->find_all();
  if (missing == nullptr && (api->get_version(&version) != 0 || version < kLeastVersion)) missing = "bf16";
  if (missing != nullptr) {
    why_not = fmt::format("the NCCL that was found lacks {}: 2.10 or later is required", missing);
    return nullptr;
  }
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  try {
    std::unique_ptr<Nccl> nccl(new Nccl(std::move(api), ranks));
    nccl->version_ = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
    return nccl;
  } catch (const NcclError& e) {
    why_not = e.what();
    return nullptr;
  }
}

Nccl::Nccl(std::unique_ptr<Api> api, std::span<const Rank> ranks)
    : api_(std::move(api)), ranks_(ranks.begin(), ranks.end()) {
  std::vector<int> ordinals;
  for (const Rank& r : ranks_) ordinals.push_back(r.ordinal);
  std::vector<Communicator> made(ranks_.size(), nullptr);
  check(api_->init_all(made.data(), static_cast<int>(made.size()), ordinals.data()), "ncclCommInitAll");
  communicators_ = std::move(made);
}

Nccl::~Nccl() {
  for (void* c : communicators_) api_->destroy(c);
  // The library stays loaded: the CUDA driver calls into it.
}

void Nccl::check(int result, const char* call) const {
  if (result == 0) return;
  const char* text = api_->error_string(result);
  throw NcclError(fmt::format("{} failed: {} (NCCL_DEBUG=WARN says more)", call,
                              text == nullptr ? "unknown error" : text));
}

template <class Call>
void Nccl::group(const char* name, const Call& call) {
  check(api_->group_start(), "ncclGroupStart");
  Result first = 0;
  for (std::size_t r = 0; r < ranks_.size() && first == 0; ++r)
    first = call(r, communicators_[r], ranks_[r].stream);
  const Result end = api_->group_end();
  check(first, name);
  check(end, name);
}

void Nccl::all_gather(const Buffers& b, int64_t bytes) {
  if (bytes == 0) return;
  group("ncclAllGather", [&](std::size_t r, void* communicator, void* stream) {
    return api_->all_gather(b.send[r], b.receive[r], static_cast<std::size_t>(bytes), kInt8, communicator,
                            stream);
  });
}

void Nccl::reduce_scatter(const Buffers& b, int64_t count, DType dtype) {
  if (count == 0) return;
  group("ncclReduceScatter", [&](std::size_t r, void* communicator, void* stream) {
    return api_->reduce_scatter(b.send[r], b.receive[r], static_cast<std::size_t>(count), type_of(dtype),
                                kSum, communicator, stream);
  });
}

void Nccl::all_to_all(std::span<const Buffers> buffers, std::span<const int64_t> bytes) {
  group("ncclSend and ncclRecv", [&](std::size_t r, void* communicator, void* stream) {
    Result result = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const auto size = static_cast<std::size_t>(bytes[i]);
      for (std::size_t other = 0; other < ranks_.size() && result == 0 && size > 0; ++other) {
        const int peer = static_cast<int>(other);
        const char* from = static_cast<const char*>(buffers[i].send[r]) + other * size;
        char* to = static_cast<char*>(buffers[i].receive[r]) + other * size;
        result = api_->send(from, size, kInt8, peer, communicator, stream);
        if (result == 0) result = api_->receive(to, size, kInt8, peer, communicator, stream);
      }
    }
    return result;
  });
}

}  // namespace attnbench
