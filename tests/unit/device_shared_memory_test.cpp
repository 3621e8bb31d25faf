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
  char* d = static_cast<char*>(m.allocate(100, "d", {.before = 10, .behind = 20, .alignment = 16}));
  char* e = static_cast<char*>(m.allocate(100, "e", {.before = 10, .row_bytes = 40, .at_page_begin = true}));
  const auto at = [](char* p) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) % 4096); };
  EXPECT_EQ(at(a + 100), 0) << "flush with the end of a page";
  EXPECT_EQ(at(b), 0);
  EXPECT_EQ(at(d + 10 + 80), 0) << "70 bytes, aligned to 16";
  EXPECT_EQ(at(e + 10), 0);
  std::memset(a, 1, 100);
  std::memset(b, 2, 3 * kMegabyte);
  EXPECT_EQ(a[99], 1);
  EXPECT_EQ(m.place_of(b + 3 * kMegabyte - 1).words, "byte 3145727 of b");
  EXPECT_TRUE(m.place_of(b + 3 * kMegabyte - 1).inside);
  EXPECT_EQ(m.place_of(a - 1).words, "1 byte before the start of a");
  EXPECT_EQ(m.place_of(d + 10 + 70).words, "byte 70 of d (it has 70 bytes)");
  EXPECT_EQ(m.place_of(e + 10 + 90).words, "byte 10 of row 2 of e (it has 2 rows)");
  EXPECT_FALSE(m.place_of(e + 10 + 90).inside);
  EXPECT_EQ(m.place_of(e + 4 * kMegabyte).words, "an address far from all tensors");
  EXPECT_TRUE(m.release(b));
  EXPECT_FALSE(m.release(b));
  EXPECT_EQ(m.allocate(3 * kMegabyte, "again"), b);
  EXPECT_EQ(b[0], 0) << "a large block gives its pages back";
  for (char* p : {a, b, c, d, e}) EXPECT_TRUE(m.release(p));
  EXPECT_NE(m.allocate(m.size(), "all"), nullptr) << "what is free is one block again";
  EXPECT_EQ(m.allocate(1, "more"), nullptr);
}

TEST(SharedMemory, HolesTakeAddressesAloneAndWordsSayWhatWraps) {
  constexpr int64_t kRow = 8192, kBlock = 16 * kRow, kBlocks = 70000, kUsed = 66000;
  SharedMemory m(int64_t{1} << 36);
  const SeenPart seen{.row_bytes = kRow,
                      .block_bytes = kBlock,
                      .element_bytes = 2,
                      .holes = {{0, kUsed * kBlock}, {(kUsed + 1) * kBlock, kBlocks * kBlock}}};
  char* k = static_cast<char*>(m.allocate(kBlocks * kBlock, "k", seen));
  ASSERT_NE(k, nullptr);
  k[kUsed * kBlock] = 1;
  const auto changes = m.take_changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].bytes, kBlock);
  ASSERT_EQ(m.seen_memory().size(), 1u);
  EXPECT_EQ(m.seen_memory()[0].data(), k + kUsed * kBlock);
  EXPECT_EQ(m.holes_of(k).size(), 2u);
  EXPECT_TRUE(m.place_of(k + kUsed * kBlock + 5).inside);
  const auto words = [&](int64_t at) { return m.place_of(k + at).words; };
  EXPECT_EQ(
      words((kUsed - 65536) * kBlock + kRow + 3),
      "byte 3 of row 7425 of k, which is no row of the case: block 66000 x stride 65536 wraps at 2^32 (or its id at "
      "2^16), and leads to block 464");
  EXPECT_EQ(
      words(kUsed * kBlock - (int64_t{1} << 32)),
      "byte 0 of row 531712 of k, which is no row of the case: block 66000 x stride 131072 bytes wraps at 2^32, and "
      "leads to block 33232");
  EXPECT_EQ(
      words(kUsed * kBlock - (int64_t{1} << 33) * 2),
      "8529117184 bytes before the start of k: block 66000 x stride 65536 wraps at 2^32 (or its id at 2^16), and leads before it");
  EXPECT_EQ(words(5 * kBlock), "byte 0 of row 80 of k, which is no row of the case");
  EXPECT_TRUE(m.release(k));
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
    for (const SharedMemory::Change& c : m.take_changes()) SharedMemory::apply(c, m.base(), Access::kReads);
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
