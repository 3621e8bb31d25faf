#include "harness/device/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace attnbench {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

TEST(SharedMemory, BlocksAreApartAndAlignedAndComeBack) {
  SharedMemory m(64 * kMegabyte);
  char* a = static_cast<char*>(m.allocate(100, "a"));
  char* b = static_cast<char*>(m.allocate(3 * kMegabyte, "b"));
  char* c = static_cast<char*>(m.allocate(0, "c"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 4096, 0u);
  std::memset(a, 1, 100);
  std::memset(b, 2, 3 * kMegabyte);
  EXPECT_EQ(a[99], 1);
  EXPECT_EQ(m.name_at(b + 3 * kMegabyte - 1), "b");
  EXPECT_EQ(m.name_at(c), "c");
  EXPECT_TRUE(m.release(b));
  EXPECT_FALSE(m.release(b));
  EXPECT_EQ(m.allocate(3 * kMegabyte, "again"), b);
  EXPECT_EQ(b[0], 0) << "a large block gives its pages back";
  for (char* p : {a, b, c}) EXPECT_TRUE(m.release(p));
  EXPECT_NE(m.allocate(m.size(), "all"), nullptr) << "what is free is one block again";
  EXPECT_EQ(m.allocate(1, "more"), nullptr);
}

TEST(SharedMemory, AnotherProcessReadsASealedOneAndCannotWrite) {
  SharedMemory m(kMegabyte);
  int* number = static_cast<int*>(m.allocate(sizeof(int), "number"));
  *number = 7;
  if (!m.seal()) GTEST_SKIP() << "the system has no such seal";
  *number = 8;  // the owner still writes
  const pid_t child = fork();
  if (child == 0) {
    munmap(m.base(), static_cast<std::size_t>(m.size()));
    if (SharedMemory::map(m.file(), m.base(), m.size(), Access::kWrites)) _exit(1);
    if (!SharedMemory::map(m.file(), m.base(), m.size(), Access::kReads)) _exit(2);
    if (mprotect(m.base(), 4096, PROT_READ | PROT_WRITE) == 0) _exit(3);
    if (pwrite(m.file(), "x", 1, 0) == 1) _exit(4);
    _exit(*number == 8 ? 0 : 5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SharedMemory, ASealedOneGivesItsPagesBackWhenNoBlockIsLeft) {
  SharedMemory m(64 * kMegabyte);
  if (!m.seal()) GTEST_SKIP() << "the system has no such seal";
  void* small = m.allocate(1, "small");
  void* large = m.allocate(8 * kMegabyte, "large");
  std::memset(large, 1, 8 * kMegabyte);
  m.release(large);
  const int64_t kept = m.kept();  // 0 on a system that makes holes into sealed files
  EXPECT_TRUE(kept == 0 || kept == 8 * kMegabyte) << kept;
  m.release(small);
  EXPECT_EQ(m.kept(), 0);
  struct stat file {};
  ASSERT_EQ(fstat(m.file(), &file), 0);
  EXPECT_LT(file.st_blocks * 512, kMegabyte);
  EXPECT_EQ(*static_cast<char*>(m.allocate(8 * kMegabyte, "again")), 0);
}

}  // namespace
}  // namespace attnbench
