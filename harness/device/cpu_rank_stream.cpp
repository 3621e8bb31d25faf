#include "harness/device/cpu_rank_stream.h"

#include <cstring>

namespace attnbench {
namespace {

uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

void CpuRankStream::mark(int at) {
  marks_.at(static_cast<std::size_t>(at)) = std::chrono::steady_clock::now();
}

bool CpuRankStream::reached(int at) {
  return marks_.at(static_cast<std::size_t>(at)).time_since_epoch().count() > 0;
}

double CpuRankStream::us_between(int from, int to) {
  return std::chrono::duration<double, std::micro>(marks_.at(static_cast<std::size_t>(to)) -
                                                   marks_.at(static_cast<std::size_t>(from)))
      .count();
}

void CpuRankStream::poison(void* data, int64_t bytes) {
  if (bytes > 0) std::memset(data, 0xff, static_cast<std::size_t>(bytes));
}

void CpuRankStream::copy(const ReturnedTensor& t) {
  const auto size = dtype_size(t.dtype);
  for (int64_t e = 0; e < returned_elements(t); ++e) {
    std::memcpy(
        static_cast<char*>(t.to.data) + returned_offset(t, t.to, e) * static_cast<int64_t>(size),
        static_cast<const char*>(t.from.data) + returned_offset(t, t.from, e) * static_cast<int64_t>(size),
        size);
  }
}

void CpuRankStream::meet(const Meeting& m) {
  m.words[m.rank]->heard_ns = 0;
  m.words[m.rank]->started_ns = now_ns();
}

void CpuRankStream::merge(const Merging& merging, const Meeting* m) {
  if (m != nullptr) m->words[m->rank]->merging_ns = now_ns();
  merge_host(merging);
}

void CpuRankStream::give_up(const std::string& why) { throw DeviceError(why, true); }

}  // namespace attnbench
