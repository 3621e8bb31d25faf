// A GPU as a device, with one stream of its own on which everything happens in order.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ATTNBENCH_HAVE_NVTX 1
#endif

#include <algorithm>
#include <map>
#include <optional>

#include "harness/device/cuda/cuda_ceilings.cuh"
#include "harness/device/cuda/cuda_check.h"
#include "harness/device/cuda/cuda_probe.h"
#include "harness/device/cuda/fill.h"
#include "harness/device/cuda/gpu_pages.cuh"
#include "harness/device/cuda/launch_timer.h"
#include "harness/device/cuda/rank_stream.h"
#include "harness/device/cuda/signs.h"
#include "harness/device/cupti.h"
#include "harness/device/device.h"
#include "harness/device/nvml.h"

namespace attnbench {
namespace {

#if ATTNBENCH_HAVE_NVTX
/// A separate domain, so that filters match no ranges of other programs. It lives as long as the program.
nvtxDomainHandle_t nvtx_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("attnbench");
  return domain;
}
#endif

/// The driver's context of this thread, or nullptr. It is found through the runtime, so that no program has
/// to link the driver library.
void* current_context() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  void* context = nullptr;
  const auto get = reinterpret_cast<int (*)(void**)>(function);  // CUresult cuCtxGetCurrent(CUcontext*)
  return get(&context) == 0 ? context : nullptr;
}

/// Bytes of released memory that are kept for later tensors.
constexpr int64_t kMostSpare = int64_t{2} << 30;

class CudaDevice final : public Device {
 public:
  CudaDevice(int cuda_ordinal, int index, GpuHost* host = nullptr)
      : ordinal_(cuda_ordinal), index_(index), info_(cuda_device_info(cuda_ordinal, index)), host_(host) {
    use();
    if (host != nullptr) {
      shared_.emplace(ordinal_);
      host->share([this] {
        use();
        wait("before a call of the kernel");  // what is launched is on a stream of another process
        return shared_->take_changes();
      });
    }
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    cuda_check(cudaMalloc(&digest_, sizeof *digest_), "cudaMalloc");
    timer_.emplace(stream_, info_);
    ceilings_.emplace(*this, *timer_, stream_, reinterpret_cast<unsigned*>(digest_));
    char bus_id[32] = "";
    cuda_check(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, ordinal_), "cudaDeviceGetPCIBusId");
    nvml_ = Nvml::open(bus_id, no_nvml_);
    if (nvml_ != nullptr && !nvml_->driver_version().empty()) {
      info_.driver = nvml_->driver_version() + " (" + info_.driver + ")";
    }
  }
  ~CudaDevice() override {
    cudaSetDevice(ordinal_);
    cudaStreamSynchronize(stream_);
    teams_.clear();
    rank_stream_.reset();
    timer_.reset();
    free_spare();
    shared_.reset();
    cudaFree(digest_);
    cudaStreamDestroy(stream_);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }
  LaunchContext launch_context() const override {
    LaunchContext context{};
    context.stream = stream_;
    context.device_ordinal = ordinal_;
    context.compute_capability = info_.compute_capability;
    context.multiprocessors = info_.multiprocessors;
    return context;
  }
  KernelHost* kernel_host() override { return host_; }
  int64_t free_memory() const override {
    use();
    std::size_t free_bytes = 0, total_bytes = 0;
    cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return static_cast<int64_t>(free_bytes) + spare_bytes_ + (shared_ ? shared_->spare_bytes() : 0);
  }

  void* allocate(int64_t bytes) override {
    use();
    if (bytes < 0) throw DeviceError("cuda: allocation of " + std::to_string(bytes) + " bytes", false);
    bytes = std::max<int64_t>(bytes, 1);
    if (const auto spare = spare_.find(bytes); spare != spare_.end()) {
      void* p = spare->second;
      spare_.erase(spare);
      spare_bytes_ -= bytes;
      sizes_[p] = bytes;
      return p;
    }
    void* p = nullptr;
    if (cudaMalloc(&p, static_cast<std::size_t>(bytes)) != cudaSuccess) {
      cudaGetLastError();
      make_room();
      const std::string what = "cudaMalloc of " + std::to_string(bytes) + " bytes";
      cuda_check(cudaMalloc(&p, static_cast<std::size_t>(bytes)), what.c_str());
    }
    sizes_[p] = bytes;
    return p;
  }
  void* allocate_for(Access access, int64_t bytes, const std::string&, const SeenPart& seen) override {
    if (!shared_ || access == Access::kNone) return allocate(bytes);
    use();
    try {
      return shared_->allocate(access, bytes, seen);
    } catch (const OutOfMemory&) {
      make_room();
      return shared_->allocate(access, bytes, seen);
    }
  }
  bool has_holes() const override { return shared_.has_value(); }
  std::vector<Hole> holes_of(const void* p) const override {
    return shared_ ? shared_->holes_of(p) : std::vector<Hole>();
  }
  void release(void* p) noexcept override {
    cudaSetDevice(ordinal_);
    if (shared_ && shared_->release(p)) return;
    const auto known = sizes_.find(p);
    if (known == sizes_.end()) return;
    const int64_t bytes = known->second;
    sizes_.erase(known);
    // Like cudaFree, this waits for work that may still use the memory.
    if (cudaDeviceSynchronize() == cudaSuccess && spare_bytes_ + bytes <= kMostSpare) {
      spare_.emplace(bytes, p);
      spare_bytes_ += bytes;
    } else {
      cudaFree(p);
    }
    cudaGetLastError();  // synchronize reports the error of a destructor
  }
  void upload(void* dst, const void* src, int64_t bytes) override {
    copy(dst, src, bytes, cudaMemcpyHostToDevice, "upload");
  }
  void download(void* dst, const void* src, int64_t bytes) override {
    for_each_part(src, bytes, holes_of(src), [&](const char* at, int64_t n) {
      copy(static_cast<char*>(dst) + (at - static_cast<const char*>(src)), at, n, cudaMemcpyDeviceToHost,
           "download");
    });
  }
  void set_bytes(void* dst, unsigned char byte, int64_t bytes) override {
    if (bytes <= 0) return;
    use();
    cuda_check(cudaMemsetAsync(dst, byte, static_cast<std::size_t>(bytes), stream_), "cudaMemsetAsync");
    wait("set_bytes");
  }
  void fill(const FillJob& job) override {
    use();
    fill_cuda(job, stream_);
    wait("fill");
  }
  uint64_t digest(const void* data, int64_t bytes) override {
    use();
    uint64_t all = 0;
    for_each_part(data, bytes, holes_of(data), [&](const char* at, int64_t n) {
      cuda_check(cudaMemsetAsync(digest_, 0, sizeof *digest_, stream_), "cudaMemsetAsync");
      digest_cuda(at, n, digest_, stream_);
      unsigned long long sum = 0;
      download(&sum, digest_, sizeof sum);
      all = all * 31 + sum;
    });
    return all;
  }
  void change_signs(const SignedTensor& tensor) override {
    use();
    change_signs_cuda(tensor, stream_);
  }
  void poison(const WatchedOutput& output) override {
    use();
    poison_cuda(output, stream_);
  }
  void take_returned(const ReturnedTensor& tensor) override {
    use();
    take_returned_cuda(tensor, stream_);
  }
  void synchronize() override {
    use();
    wait("synchronize");
  }

  void reset_cache_policy() override {
    if (host_ != nullptr) return;  // its process does before each timed launch
    use();
    cudaStreamAttrValue policy{};
    if (cudaStreamGetAttribute(stream_, cudaStreamAttributeAccessPolicyWindow, &policy) == cudaSuccess &&
        policy.accessPolicyWindow.num_bytes > 0) {
      policy.accessPolicyWindow = {};
      cuda_check(cudaStreamSetAttribute(stream_, cudaStreamAttributeAccessPolicyWindow, &policy),
                 "cudaStreamSetAttribute");
    }
    std::size_t persisting = 0;
    cudaDeviceGetLimit(&persisting, cudaLimitPersistingL2CacheSize);
    if (persisting > 0) {
      cudaCtxResetPersistingL2Cache();
      cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0);
    }
    cudaGetLastError();  // of a GPU where nothing can persist
  }
  std::optional<ClockReading> read_clocks() override {
    return nvml_ == nullptr ? std::nullopt : std::optional(nvml_->read());
  }

  using Device::time_launch;
  Sample time_launch(const std::function<void()>& launch, CacheMode cache,
                     const LaunchWatch* watch) override {
    use();
    if (host_ == nullptr) return timer_->time(launch, cache, watch);
    Sample sample = host_->time_launch(launch, cache, watch);
    WatchReading& seen = sample.watch;
    if (watch != nullptr && seen.when_idle == seen.at_end) seen.when_idle = timer_->digest(*watch);
    return sample;
  }
  Go time_go(const std::function<void()>& launches) override {
    use();
    if (hold_ == nullptr)
      hold_ = static_cast<uint32_t*>(shared_->allocate(Access::kLooks, sizeof *hold_, {}));
    const uint32_t ticket = ++held_;
    return host_->time_go(launches,
                          {hold_, ticket, [this, ticket] { upload(hold_, &ticket, sizeof ticket); }});
  }

  CounterReading count_launch(const std::function<void()>& launch, const std::function<void()>& prepare,
                              CacheMode cache) override {
    if (host_ != nullptr) return host_->count_launch(launch, prepare, cache);
    use();
    if (cupti_ == nullptr && no_cupti_.empty()) cupti_ = Cupti::open(ordinal_, no_cupti_);
    if (cupti_ == nullptr) {
      CounterReading none;
      none.reason = no_cupti_;
      return none;
    }
    const auto ready = [&] {
      prepare();
      timer_->empty_caches(cache);
      wait("before a counted launch");
    };
    const auto counted = [&] {
      launch();
      wait("counted launch");
    };
    return cupti_->count(current_context(), ready, counted);
  }

  std::function<void()> capture_graph(const std::function<void()>& launch) override {
    if (host_ != nullptr) return host_->capture_graph(launch);
    use();
    cuda_check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      launch();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    cuda_check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t raw = nullptr;
    const cudaError_t error = cudaGraphInstantiateWithFlags(&raw, graph, 0);
    cudaGraphDestroy(graph);
    cuda_check(error, "cudaGraphInstantiate");
    const std::shared_ptr<CUgraphExec_st> exec(raw, [](cudaGraphExec_t e) { cudaGraphExecDestroy(e); });
    cuda_check(cudaGraphUpload(exec.get(), stream_), "cudaGraphUpload");
    wait("cudaGraphUpload");
    return [exec, stream = stream_] { cuda_check(cudaGraphLaunch(exec.get(), stream), "cudaGraphLaunch"); };
  }

  const Ceilings& ceilings(const std::vector<DType>& dtypes) override {
    use();
    return ceilings_->of(dtypes, nvml_ == nullptr ? "; no clocks: " + no_nvml_ : "");
  }
  void adopt_ceilings(const Ceilings& measured) override { ceilings_->adopt(measured); }

  RankTeam* rank_team(int32_t ranks, std::string& why_not) override {
    if (const auto known = teams_.find(ranks); known != teams_.end()) return &known->second;
    std::string ignored;
    const std::vector<int> usable = usable_cuda_ordinals(ignored);
    const auto count = static_cast<int>(usable.size());
    if (ranks > std::min(count, kMostRanks)) {
      why_not = std::to_string(ranks) + " ranks apart need " + std::to_string(ranks) + " GPUs, and there " +
                (count == 1 ? "is 1" : "are " + std::to_string(count));
      return nullptr;
    }
    RankTeam team;
    for (int32_t r = 0; r < ranks; ++r) {
      const int i = (index_ + r) % count;
      if (r > static_cast<int32_t>(peers_.size()))
        peers_.push_back(std::make_unique<CudaDevice>(usable[static_cast<std::size_t>(i)], i));
      CudaDevice* device = r == 0 ? this : peers_[static_cast<std::size_t>(r) - 1].get();
      team.devices.push_back(device);
      team.streams.push_back(device->rank_stream());
    }
    for (Device* a : team.devices) {
      for (Device* b : team.devices) {
        const int from = a->launch_context().device_ordinal, to = b->launch_context().device_ordinal;
        if (a == b || enable_peer_access(from, to)) continue;
        why_not = a->info().name + " cannot read the memory of " + b->info().name +
                  ": nvidia-smi topo -p2p r shows which GPUs can";
        return nullptr;
      }
    }
    use();
    return &teams_.emplace(ranks, std::move(team)).first->second;
  }

  void profiler_start() override {
    use();
    cuda_check(cudaProfilerStart(), "cudaProfilerStart");
  }
  void profiler_stop() override {
    use();
    cuda_check(cudaProfilerStop(), "cudaProfilerStop");
  }
#if ATTNBENCH_HAVE_NVTX
  void range_push(const char* name) override {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    nvtxDomainRangePushEx(nvtx_domain(), &range);
  }
  void range_pop() override { nvtxDomainRangePop(nvtx_domain()); }
#else
  void range_push(const char*) override {}
  void range_pop() override {}
#endif

 private:
  RankStream* rank_stream() {
    if (rank_stream_ == nullptr) {
      rank_stream_ = std::make_unique<CudaRankStream>(ordinal_, stream_, info_.multiprocessors, *timer_);
    }
    return rank_stream_.get();
  }
  void use() const { cuda_check(cudaSetDevice(ordinal_), "cudaSetDevice"); }
  void wait(const char* what) const { cuda_check(cudaStreamSynchronize(stream_), what); }
  void copy(void* dst, const void* src, int64_t bytes, cudaMemcpyKind kind, const char* what) {
    if (bytes <= 0) return;
    use();
    cuda_check(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(bytes), kind, stream_), what);
    wait(what);
  }

  void make_room() {
    free_spare();
    if (host_ != nullptr) host_->pass_on();
  }
  void free_spare() {
    if (shared_) shared_->free_spare();
    for (const auto& [bytes, p] : spare_) cudaFree(p);
    spare_.clear();
    spare_bytes_ = 0;
  }

  int ordinal_;
  int index_;  ///< N of cuda:N
  DeviceInfo info_;
  GpuHost* host_;
  std::optional<OwnedGpuPages> shared_;  ///< with the process of the host
  uint32_t* hold_ = nullptr;             ///< GpuHold
  uint32_t held_ = 0;
  cudaStream_t stream_ = nullptr;
  std::map<void*, int64_t> sizes_;  ///< bytes of what is allocated
  /// Released memory by its size: successive cases and copies take the same sizes, and cudaMalloc and cudaFree
  /// are slow.
  std::multimap<int64_t, void*> spare_;
  int64_t spare_bytes_ = 0;
  unsigned long long* digest_ = nullptr;  ///< device memory
  std::optional<LaunchTimer> timer_;
  std::optional<CudaCeilings> ceilings_;
  std::unique_ptr<Nvml> nvml_;    ///< null if the library is absent
  std::string no_nvml_;           ///< why nvml_ is null
  std::unique_ptr<Cupti> cupti_;  ///< opened at the first count
  std::string no_cupti_;          ///< why cupti_ could not be opened
  std::unique_ptr<CudaRankStream> rank_stream_;
  std::vector<std::unique_ptr<CudaDevice>> peers_;  ///< of the teams' other ranks
  std::map<int32_t, RankTeam> teams_;               ///< by number of ranks
};

}  // namespace

std::unique_ptr<Device> open_cuda(int ordinal, GpuHost* host) {
  std::string reason;
  const std::vector<int> usable = usable_cuda_ordinals(reason);
  if (ordinal < 0 || ordinal >= static_cast<int>(usable.size())) {
    throw DeviceError("cuda:" + std::to_string(ordinal) + ": " + (reason.empty() ? "no such device" : reason),
                      false);
  }
  return std::make_unique<CudaDevice>(usable[static_cast<std::size_t>(ordinal)], ordinal, host);
}

}  // namespace attnbench
