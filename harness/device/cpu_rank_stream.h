// A rank on the CPU, for tests: what is enqueued is done at once, one rank after the other.
#pragma once

#include <array>
#include <chrono>
#include <string>

#include "harness/device/ranks.h"

namespace attnbench {

class CpuRankStream : public RankStream {
 public:
  CpuRankStream() = default;
  void* stream() const override { return nullptr; }
  void make_current() override {}
  void wait_for(RankStream&) override {}
  void mark(int at) override;
  bool reached(int at) override;
  double us_between(int from, int to) override;
  void empty_caches(CacheMode) override {}
  void poison(void* data, int64_t bytes) override;
  void copy(const ReturnedTensor& tensor) override;
  void meet(const Meeting& meeting) override;
  void gather(const Gathering& g, const Meeting&) override { gather_host(g); }
  void merge(const Merging& m, const Meeting* meeting) override;
  void correct(const Correcting& c) override { correct_host(c); }
  [[noreturn]] void give_up(const std::string& why) override;

 private:
  std::array<std::chrono::steady_clock::time_point, kMostMarks> marks_{};
};

}  // namespace attnbench
