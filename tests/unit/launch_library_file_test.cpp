// Files that are given as a shared library and are something else, by their first bytes.
#include "harness/launch/library_file.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class RunLibraryFile : public testing::Test {
 protected:
  std::string why(const std::string& bytes, const std::string& name = "mine.so") const {
    const std::string file = (folder.path() / name).string();
    std::ofstream(file, std::ios::binary) << bytes;
    return why_no_library(file);
  }

  const test::TempFolder folder;
};

/// The header of this program, which is of this machine, as that of a shared library without parts.
std::string header() {
  ElfW(Ehdr) h{};
  std::ifstream("/proc/self/exe", std::ios::binary).read(reinterpret_cast<char*>(&h), sizeof h);
  h.e_type = ET_DYN;
  h.e_phnum = 0;
  h.e_phoff = sizeof h;
  return {reinterpret_cast<const char*>(&h), sizeof h};
}

std::string changed(std::string bytes, std::size_t at, unsigned value, std::size_t size = 1) {
  for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

TEST_F(RunLibraryFile, AnotherMachineIsNamedAndWhereItDiffers) {
  constexpr std::size_t kMachine = 18;  // of e_machine, in every ELF header
  const std::string arm = changed(header(), kMachine, EM_AARCH64, 2),
                    x86 = changed(header(), kMachine, EM_X86_64, 2);
  const std::string other = why(arm) + why(x86);  // one of them is this machine
  EXPECT_THAT(
      other, AllOf(StartsWith("it is for "), HasSubstr("aarch64"), HasSubstr("x86-64"),
                   HasSubstr(", and this machine is "), EndsWith("; compile it on this machine, or for it")));
  EXPECT_THAT(why(changed(header(), EI_CLASS, ELFCLASS32)), HasSubstr(", 32-bit, and this machine is "));
  EXPECT_THAT(why(changed(header(), kMachine, 7777, 2)),
              StartsWith("it is for machine 7777 of ELF, and this"));
  EXPECT_THAT(why(changed(header(), kMachine, EM_386, 2)), StartsWith("it is for x86, and this machine"));
  EXPECT_THAT(why(changed(header(), kMachine, 190, 2)),
              StartsWith("it is for NVIDIA GPUs alone (a cubin), and"));
  std::string s390 = changed(header(), EI_DATA, ELFDATA2MSB);
  s390[kMachine] = 0;
  s390[kMachine + 1] = EM_S390;
  EXPECT_THAT(why(s390), StartsWith("it is for s390, big-endian, and this machine is "));
}

TEST_F(RunLibraryFile, AnotherTypeOfElfFileIsNamedWithItsMend) {
  constexpr std::size_t kType = 16;
  EXPECT_EQ(why(header()), "");
  EXPECT_THAT(why(changed(header(), kType, ET_REL, 2)),
              StartsWith("it is an object file, which is not linked; link it: g++ -shared"));
  EXPECT_THAT(why(changed(header(), kType, ET_EXEC, 2)),
              StartsWith("it is a program; a shared library is required"));
  EXPECT_THAT(why(changed(header(), kType, ET_CORE, 2)), StartsWith("it is an ELF file of type 4; a shared"));
}

TEST_F(RunLibraryFile, ACutFileIsToldByItsSize) {
  EXPECT_THAT(why(""), StartsWith("it is empty: "));
  for (const std::size_t bytes : {std::size_t{5}, sizeof(Elf32_Ehdr), header().size() - 1})
    EXPECT_THAT(why(header().substr(0, bytes)), StartsWith("it is cut off: it has " + std::to_string(bytes)));
  ElfW(Phdr) part{};
  part.p_type = PT_LOAD;
  part.p_offset = 100;
  part.p_filesz = 900;
  const std::string file = changed(header(), offsetof(ElfW(Ehdr), e_phnum), 1, 2) +
                           std::string(reinterpret_cast<const char*>(&part), sizeof part);
  EXPECT_EQ(why(file), "it is cut off: it has " + std::to_string(file.size()) +
                           " bytes, and needs 1000 at least; build or copy it again");
  EXPECT_EQ(why(file + std::string(1000 - file.size(), '\0')), "");
  EXPECT_THAT(why(changed(header(), offsetof(ElfW(Ehdr), e_phnum), 1, 2)), StartsWith("it is cut off: "));
}

TEST_F(RunLibraryFile, WhatIsNoElfFileIsNamedWithItsMend) {
  EXPECT_THAT(why("!<arch>\n/       0"),
              AllOf(StartsWith("it is a static archive; "), HasSubstr("--whole-archive")));
  EXPECT_EQ(
      why("/* GNU ld script */\nOUTPUT_FORMAT(elf64-x86-64)\nGROUP ( /lib/libm.so.6  AS_NEEDED ( /lib/x.so.1 ) )"),
      "it is a linker script; give the library that it names, /lib/libm.so.6");
  EXPECT_THAT(why("import attnbench\n"), AllOf(StartsWith("it is text; a shared library is required"),
                                               EndsWith("(the name of a kernel in Python must end in .py)")));
  EXPECT_THAT(why("int main() {}\n", "mine.cu"), StartsWith("it is source code: compile it, "));
  EXPECT_THAT(why("MZ\x90"), StartsWith("it is for Windows; a shared library is required"));
  EXPECT_THAT(why(std::string("\x01\x02\x00", 3)),
              StartsWith("it has no ELF header; a shared library is required"));
}

}  // namespace
}  // namespace attnbench
