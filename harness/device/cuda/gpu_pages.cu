#include "harness/device/cuda/gpu_pages.cuh"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include "harness/device/cuda/cuda_check.h"
#include "harness/device/device.h"

namespace attnbench {
namespace {

// Between a program's heap and its libraries. Both processes have these addresses free, as the driver maps none there.
constexpr CUdeviceptr kFirst = 0x6000'0000'0000;
constexpr int64_t kRange = int64_t{1} << 40;
constexpr int64_t kPage = int64_t{2} << 20;  ///< what a GPU maps at once
constexpr int64_t kMostSpare = int64_t{2}
                               << 30;  ///< bytes of released blocks that are kept for later tensors
constexpr int64_t kAligned = 256;      ///< as cudaMalloc does

int64_t pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// A function of the driver, which no program has to link.
template <class Function>
Function* driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cuda_check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name);
  if (found != cudaDriverEntryPointSuccess)
    throw DeviceError(std::string(name) + ": the driver does not have it", false);
  return reinterpret_cast<Function*>(function);
}
#define ATTNBENCH_DRIVER(name) driver<decltype(name)>(#name)

void driver_check(CUresult error, const char* what) {
  if (error == CUDA_SUCCESS) return;
  const std::string text = std::string(what) + ": error " + std::to_string(error) + " of the driver";
  if (error == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(text);
  throw DeviceError(text, false);
}

struct Driver {
  decltype(cuMemAddressReserve)* reserve = ATTNBENCH_DRIVER(cuMemAddressReserve);
  decltype(cuMemAddressFree)* free = ATTNBENCH_DRIVER(cuMemAddressFree);
  decltype(cuMemCreate)* create = ATTNBENCH_DRIVER(cuMemCreate);
  decltype(cuMemRelease)* release = ATTNBENCH_DRIVER(cuMemRelease);
  decltype(cuMemMap)* map = ATTNBENCH_DRIVER(cuMemMap);
  decltype(cuMemUnmap)* unmap = ATTNBENCH_DRIVER(cuMemUnmap);
  decltype(cuMemSetAccess)* set_access = ATTNBENCH_DRIVER(cuMemSetAccess);
  decltype(cuMemExportToShareableHandle)* to_file = ATTNBENCH_DRIVER(cuMemExportToShareableHandle);
  decltype(cuMemImportFromShareableHandle)* from_file = ATTNBENCH_DRIVER(cuMemImportFromShareableHandle);
  decltype(cuStreamWaitValue32)* wait_value = ATTNBENCH_DRIVER(cuStreamWaitValue32);
};
const Driver& cu() {
  static const Driver driver;
  return driver;
}

void reserve(CUdeviceptr at) {
  CUdeviceptr got = 0;
  driver_check(cu().reserve(&got, kRange, 0, at, 0), "cuMemAddressReserve");
  if (got != at) throw DeviceError("the addresses at which kernels see tensors are not free", false);
}

void map_at(CUdeviceptr at, int64_t bytes, CUmemGenericAllocationHandle memory, bool writes) {
  const auto size = static_cast<std::size_t>(bytes);
  int ordinal = 0;
  cuda_check(cudaGetDevice(&ordinal), "cudaGetDevice");
  driver_check(cu().map(at, size, 0, memory, 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  driver_check(cu().set_access(at, size, &access, 1), "cuMemSetAccess");
}

bool has(CUdevice_attribute what, int ordinal) {
  int value = 0;
  return ATTNBENCH_DRIVER(cuDeviceGetAttribute)(&value, what, ordinal) == CUDA_SUCCESS && value != 0;
}

}  // namespace

bool can_share_gpu(int ordinal) {
  int mode = 0;
  return cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, ordinal) == cudaSuccess &&
         mode == cudaComputeModeDefault &&
         has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal) &&
         has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal) &&
         !has(CU_DEVICE_ATTRIBUTE_INTEGRATED, ordinal);
}

void* second_place(const void* p) {
  return p == nullptr ? nullptr : std::bit_cast<void*>(std::bit_cast<uintptr_t>(p) + kRange);
}

void reserve_gpu_pages() {
  reserve(kFirst);
  reserve(kFirst + kRange);
}

void apply(const GpuPages& p) {
  const auto size = static_cast<std::size_t>(p.bytes);
  const bool visible = p.access != Access::kLooks;
  if (p.file < 0) {
    if (visible) driver_check(cu().unmap(p.address, size), "cuMemUnmap");
    driver_check(cu().unmap(p.address + kRange, size), "cuMemUnmap");
    return;
  }
  CUmemGenericAllocationHandle memory{};
  const auto file = std::bit_cast<void*>(static_cast<uintptr_t>(p.file));
  driver_check(cu().from_file(&memory, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "import of GPU memory");
  close(p.file);
  if (visible) map_at(p.address, p.bytes, memory, p.access == Access::kWrites);
  map_at(p.address + kRange, p.bytes, memory, true);
  cu().release(memory);
}

void enqueue_wait(void* stream, const void* at, uint32_t ticket) {
  driver_check(cu().wait_value(static_cast<CUstream>(stream), std::bit_cast<CUdeviceptr>(at), ticket,
                               CU_STREAM_WAIT_VALUE_EQ),
               "cuStreamWaitValue32");
}

OwnedGpuPages::OwnedGpuPages(int ordinal) : ordinal_(ordinal), free_(kRange) { reserve(kFirst); }

OwnedGpuPages::~OwnedGpuPages() {
  free_spare();
  for (const auto& [at, block] : used_) unmap(at, block);
  cu().free(kFirst, kRange);
}

void* OwnedGpuPages::allocate(Access access, int64_t bytes, const SeenPart& seen) {
  const int64_t visible = bytes - seen.before - seen.behind, alignment = std::max(seen.alignment, kAligned);
  const int64_t part = (visible + alignment - 1) / alignment * alignment;
  const int64_t at_border = seen.before + (seen.at_page_begin ? 0 : part);  // begin or end of the part
  const int64_t shift = pages(at_border) - at_border;
  Shape shape{(shift + seen.before) / kPage * kPage, 0, 0, access};
  if (visible > 0) shape.seen = pages(shift + seen.before + visible) - shape.before;
  shape.behind = std::max(pages(shift + std::max<int64_t>(bytes, 1)) - shape.before - shape.seen, int64_t{0});
  if (const auto spare = spare_.find(shape); spare != spare_.end()) {
    const int64_t at = spare->second.first;
    used_.emplace(at, std::move(spare->second.second));
    spare_.erase(spare);
    spare_bytes_ -= shape.bytes();
    return std::bit_cast<void*>(kFirst + static_cast<CUdeviceptr>(at + shift));
  }
  const auto at = free_.take(shape.bytes());
  if (!at) throw OutOfMemory("no addresses are left for a tensor");
  try {
    used_.emplace(*at, make(*at, shape));
  } catch (...) {
    free_.give(*at, shape.bytes());
    throw;
  }
  return std::bit_cast<void*>(kFirst + static_cast<CUdeviceptr>(*at + shift));
}

OwnedGpuPages::Block OwnedGpuPages::make(int64_t at, const Shape& shape) {
  Block block{shape, {}};
  try {
    for (const Part& part : parts(at, shape)) map(block, part);
  } catch (...) {
    unmap(at, block);
    throw;
  }
  return block;
}

std::vector<OwnedGpuPages::Part> OwnedGpuPages::parts(int64_t at, const Shape& s) {
  const int64_t seen = at + s.before, behind = seen + s.seen;
  std::vector<Part> parts = {
      {at, s.before, Access::kLooks}, {seen, s.seen, s.access}, {behind, s.behind, Access::kLooks}};
  std::erase_if(parts, [](const Part& part) { return part.bytes == 0; });
  return parts;
}

void OwnedGpuPages::map(Block& block, const Part& part) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = ordinal_;
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory{};
  const std::string what = "cuMemCreate of " + std::to_string(part.bytes) + " bytes";
  driver_check(cu().create(&memory, static_cast<std::size_t>(part.bytes), &kind, 0), what.c_str());
  block.memory.push_back(memory);
  const CUdeviceptr address = kFirst + static_cast<CUdeviceptr>(part.at);
  map_at(address, part.bytes, memory, true);
  int file = -1;
  driver_check(cu().to_file(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "export of GPU memory");
  changes_.push_back({address, part.bytes, part.access, file});
}

void OwnedGpuPages::unmap(int64_t at, const Block& block) noexcept {
  std::size_t i = 0;
  for (const Part& part : parts(at, block.shape)) {
    if (i == block.memory.size()) return;
    const CUdeviceptr address = kFirst + static_cast<CUdeviceptr>(part.at);
    cu().unmap(address, static_cast<std::size_t>(part.bytes));
    cu().release(block.memory[i++]);
    const auto pending = std::ranges::find_if(
        changes_, [&](const GpuPages& p) { return p.address == address && p.file >= 0; });
    if (pending == changes_.end()) {
      changes_.push_back({address, part.bytes, part.access, -1});
    } else {  // the other process has not mapped it
      close(pending->file);
      changes_.erase(pending);
    }
  }
}

bool OwnedGpuPages::release(void* p) noexcept {
  const auto at = std::bit_cast<CUdeviceptr>(p);
  if (at < kFirst || at >= kFirst + kRange) return false;
  auto found = used_.upper_bound(static_cast<int64_t>(at - kFirst));
  if (found == used_.begin()) return false;
  --found;
  const Shape shape = found->second.shape;
  if (spare_bytes_ + shape.bytes() <= kMostSpare) {
    spare_bytes_ += shape.bytes();
    spare_.emplace(shape, std::pair(found->first, std::move(found->second)));
  } else {
    unmap(found->first, found->second);
    free_.give(found->first, shape.bytes());
  }
  used_.erase(found);
  return true;
}

void OwnedGpuPages::free_spare() noexcept {
  for (const auto& [shape, block] : spare_) {
    unmap(block.first, block.second);
    free_.give(block.first, shape.bytes());
  }
  spare_.clear();
  spare_bytes_ = 0;
}

}  // namespace attnbench
