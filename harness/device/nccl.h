// NVIDIA's collectives (NCCL) between the GPUs of this process, in a library that is opened at run time.
// Without it, only cases that need it are skipped.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/error.h"
#include "kernels/contract/dtype.h"

namespace attnbench {

/// NCCL refused a call; what() is one line with the call and NCCL's own text.
class NcclError : public Error {
 public:
  explicit NcclError(const std::string& what) : Error(what, kExitFailure) {}
};

/// One communicator per rank, all in this thread. A call is for all ranks: it enqueues one operation on the
/// stream of each. Buffers are by rank. Calls throw NcclError.
class Nccl {
 public:
  struct Rank {
    int ordinal;   ///< CUDA device
    void* stream;  ///< cudaStream_t
  };
  /// A buffer of each rank that is sent, and one that receives.
  struct Buffers {
    std::span<const void* const> send;
    std::span<void* const> receive;
  };

  /// Opens the first library that there is. Returns null with the reason and the remedy. NVLink multicast
  /// stays off (NCCL_NVLS_ENABLE=0), unless the environment sets it.
  static std::unique_ptr<Nccl> open(std::span<const Rank> ranks, const std::vector<std::string>& libraries,
                                    std::string& why_not);
  static std::vector<std::string> usual_libraries();
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// Each rank sends `bytes` and receives those of all ranks in their order.
  void all_gather(const Buffers& b, int64_t bytes);
  /// Each rank sends `count` elements for every rank, and receives the sum of those for it. bf16, fp16, fp32.
  void reduce_scatter(const Buffers& b, int64_t count, DType dtype);
  /// Each rank sends `bytes` to every rank, and receives as many of each in their order. All buffers go in one
  /// group; `bytes` is by buffer.
  void all_to_all(std::span<const Buffers> buffers, std::span<const int64_t> bytes);

  const std::string& version() const { return version_; }  ///< "2.28.9"

 private:
  struct Api;
  Nccl(std::unique_ptr<Api> api, std::span<const Rank> ranks);
  void check(int result, const char* call) const;
  template <class Call>
  void group(const char* name, const Call& call);

  std::unique_ptr<Api> api_;
  std::vector<Rank> ranks_;
  std::vector<void*> communicators_;
  std::string version_;
};

}  // namespace attnbench
