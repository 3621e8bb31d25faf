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
/// The memory of a whole hole, mapped again and again, so that what fills or reads a tensor finds some everywhere.
constexpr int64_t kFiller = int64_t{8} << 20;
constexpr int64_t kLeastHole = 4 * kFiller;
/// Before and behind a block with holes: an offset of -2^31 elements still leads to no other block.
constexpr int64_t kApart = int64_t{1} << 33;

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

/// Calls f(address) for each mapping.
template <class F>
void for_each_unit(CUdeviceptr at, int64_t bytes, int64_t unit, const F& f) {
  for (int64_t done = 0; done < bytes; done += unit) f(at + static_cast<CUdeviceptr>(done));
}

void map_at(CUdeviceptr at, int64_t bytes, int64_t unit, CUmemGenericAllocationHandle memory, bool writes) {
  const auto size = static_cast<std::size_t>(bytes);
  int ordinal = 0;
  cuda_check(cudaGetDevice(&ordinal), "cudaGetDevice");
  for_each_unit(at, bytes, unit, [&](CUdeviceptr to) {
    driver_check(cu().map(to, static_cast<std::size_t>(unit), 0, memory, 0), "cuMemMap");
  });
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
  const bool visible = p.access != Access::kLooks;
  if (p.file < 0) {
    for_each_unit(p.address, p.bytes, p.unit, [&](CUdeviceptr at) {
      const auto size = static_cast<std::size_t>(p.unit);
      if (visible) driver_check(cu().unmap(at, size), "cuMemUnmap");
      driver_check(cu().unmap(at + kRange, size), "cuMemUnmap");
    });
    return;
  }
  CUmemGenericAllocationHandle memory{};
  const auto file = std::bit_cast<void*>(static_cast<uintptr_t>(p.file));
  driver_check(cu().from_file(&memory, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "import of GPU memory");
  close(p.file);
  if (visible) map_at(p.address, p.bytes, p.unit, memory, p.access == Access::kWrites);
  map_at(p.address + kRange, p.bytes, p.unit, memory, true);
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
  Shape shape{(shift + seen.before) / kPage * kPage, 0, 0, access, {}};
  if (visible > 0) shape.seen = pages(shift + seen.before + visible) - shape.before;
  shape.behind = std::max(pages(shift + std::max<int64_t>(bytes, 1)) - shape.before - shape.seen, int64_t{0});
  for (const ByteRange& hole : seen.holes) {
    // The first page is there: a copy by a tensor map that brings zeros alone touches the map's first address.
    const int64_t begin = std::max(pages(shift + seen.before + hole.begin), shape.before + kPage);
    const int64_t end = shift + seen.before + hole.end;
    if (end - begin >= kLeastHole) shape.holes.push_back({begin, begin + (end - begin) / kFiller * kFiller});
  }
  if (const auto spare = spare_.find(shape); spare != spare_.end()) {
    const int64_t at = spare->second.first;
    used_.emplace(at, std::move(spare->second.second));
    spare_.erase(spare);
    spare_bytes_ -= shape.in_memory();
    return std::bit_cast<void*>(kFirst + static_cast<CUdeviceptr>(at + shift));
  }
  const auto free = free_.take(shape.bytes() + 2 * shape.apart());
  if (!free) throw OutOfMemory("no addresses are left for a tensor");
  const int64_t at = *free + shape.apart();
  try {
    used_.emplace(at, make(at, shape));
  } catch (...) {
    give(at, shape);
    throw;
  }
  return std::bit_cast<void*>(kFirst + static_cast<CUdeviceptr>(at + shift));
}

int64_t OwnedGpuPages::Shape::in_memory() const {
  int64_t there = bytes();
  for (const ByteRange& hole : holes) there -= hole.end - hole.begin - kFiller;
  return there;
}

int64_t OwnedGpuPages::Shape::apart() const { return holes.empty() ? 0 : kApart; }

std::map<int64_t, OwnedGpuPages::Block>::const_iterator OwnedGpuPages::block_of(const void* p) const {
  const auto at = std::bit_cast<CUdeviceptr>(p);
  if (at < kFirst || at >= kFirst + kRange) return used_.end();
  const auto next = used_.upper_bound(static_cast<int64_t>(at - kFirst));
  return next == used_.begin() ? used_.end() : std::prev(next);
}

std::vector<Hole> OwnedGpuPages::holes_of(const void* p) const {
  std::vector<Hole> holes;
  const auto block = block_of(p);
  if (block == used_.end()) return holes;
  const char* begin = std::bit_cast<const char*>(kFirst + static_cast<CUdeviceptr>(block->first));
  for (const ByteRange& hole : block->second.shape.holes)
    holes.push_back({begin + hole.begin, begin + hole.end});
  return holes;
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
  std::vector<Part> parts;
  const auto add = [&](int64_t begin, int64_t end, Access access) {
    if (begin < end) parts.push_back({at + begin, end - begin, end - begin, access});
  };
  add(0, s.before, Access::kLooks);
  int64_t begin = s.before;
  for (const ByteRange& hole : s.holes) {
    add(begin, hole.begin, s.access);
    parts.push_back({at + hole.begin, hole.end - hole.begin, kFiller, Access::kLooks});
    begin = hole.end;
  }
  add(begin, s.before + s.seen, s.access);
  add(s.before + s.seen, s.bytes(), Access::kLooks);
  return parts;
}

void OwnedGpuPages::map(Block& block, const Part& part) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = ordinal_;
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle memory{};
  const std::string what = "cuMemCreate of " + std::to_string(part.unit) + " bytes";
  driver_check(cu().create(&memory, static_cast<std::size_t>(part.unit), &kind, 0), what.c_str());
  block.memory.push_back(memory);
  const CUdeviceptr address = kFirst + static_cast<CUdeviceptr>(part.at);
  map_at(address, part.bytes, part.unit, memory, true);
  int file = -1;
  driver_check(cu().to_file(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "export of GPU memory");
  changes_.push_back({address, part.bytes, part.unit, part.access, file});
}

void OwnedGpuPages::unmap(int64_t at, const Block& block) noexcept {
  std::size_t i = 0;
  for (const Part& part : parts(at, block.shape)) {
    if (i == block.memory.size()) return;
    const CUdeviceptr address = kFirst + static_cast<CUdeviceptr>(part.at);
    for_each_unit(address, part.bytes, part.unit,
                  [&](CUdeviceptr p) { cu().unmap(p, static_cast<std::size_t>(part.unit)); });
    cu().release(block.memory[i++]);
    const auto pending = std::ranges::find_if(
        changes_, [&](const GpuPages& p) { return p.address == address && p.file >= 0; });
    if (pending == changes_.end()) {
      changes_.push_back({address, part.bytes, part.unit, part.access, -1});
    } else {  // the other process has not mapped it
      close(pending->file);
      changes_.erase(pending);
    }
  }
}

bool OwnedGpuPages::release(void* p) noexcept {
  const auto found = block_of(p);
  if (found == used_.end()) return false;
  const Shape& shape = found->second.shape;
  if (spare_bytes_ + shape.in_memory() <= kMostSpare) {
    spare_bytes_ += shape.in_memory();
    spare_.emplace(shape, std::pair(found->first, found->second));
  } else {
    unmap(found->first, found->second);
    give(found->first, shape);
  }
  used_.erase(found);
  return true;
}

void OwnedGpuPages::free_spare() noexcept {
  for (const auto& [shape, block] : spare_) {
    unmap(block.first, block.second);
    give(block.first, shape);
  }
  spare_.clear();
  spare_bytes_ = 0;
}

}  // namespace attnbench
