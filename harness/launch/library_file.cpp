#include "harness/launch/library_file.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

namespace attnbench {
namespace {

constexpr const char* kWanted = "a shared library is required, made by g++ or nvcc with -fPIC and -shared";
constexpr const char* kArchive =
    "it is a static archive; link it into a shared library: g++ -shared -o mine.so -Wl,--whole-archive FILE "
    "-Wl,--no-whole-archive, with objects that are compiled with -fPIC";
constexpr std::size_t kTextBytes = 4096;  ///< so many are looked at

constexpr std::pair<std::string_view, const char*> kOthers[] = {{"MZ", "for Windows"},
                                                                {"\xcf\xfa\xed\xfe", "for macOS"},
                                                                {"\xca\xfe\xba\xbe", "for macOS"},
                                                                {"PK\x03\x04", "a zip archive or a wheel"},
                                                                {"BC\xc0\xde", "bitcode of LLVM"}};
constexpr std::pair<unsigned, const char*> kMachines[] = {
    {EM_X86_64, "x86-64"}, {EM_386, "x86"},     {EM_AARCH64, "aarch64"},
    {EM_ARM, "arm"},       {EM_RISCV, "riscv"}, {EM_PPC64, "ppc64"},
    {EM_PPC, "ppc"},       {EM_S390, "s390"},   {EM_MIPS, "mips"},
    {EM_SPARCV9, "sparc"}, {258, "loongarch"},  {190, "NVIDIA GPUs alone (a cubin)"}};

/// What decides whether a library fits a machine.
struct Machine {
  unsigned char bits, order;  ///< EI_CLASS, EI_DATA
  unsigned number;            ///< e_machine
};

/// `head`: the first bytes of an ELF file, at least sizeof(Elf32_Ehdr).
Machine machine_of(const std::string& head) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(head[i]); };
  const std::size_t at = offsetof(Elf32_Ehdr, e_machine);  // the same in both classes
  const bool big = byte(EI_DATA) == ELFDATA2MSB;
  return {byte(EI_CLASS), byte(EI_DATA), byte(at + (big ? 0 : 1)) * 256U + byte(at + (big ? 1 : 0))};
}

/// Its name, and in what else it differs from `other`.
std::string machine_text(const Machine& m, const Machine& other) {
  const auto known = std::find_if(std::begin(kMachines), std::end(kMachines),
                                  [&](const auto& entry) { return entry.first == m.number; });
  std::string text =
      known != std::end(kMachines) ? known->second : fmt::format("machine {} of ELF", m.number);
  if (m.bits != other.bits) text += m.bits == ELFCLASS32 ? ", 32-bit" : ", 64-bit";
  if (m.order != other.order) text += m.order == ELFDATA2MSB ? ", big-endian" : ", little-endian";
  return text;
}

std::string first_bytes(const std::string& file, std::size_t most) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes(most, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(most));
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return bytes;
}

bool is_text(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u >= 0x80 || std::isprint(u) || std::isspace(u);
  });
}

/// The first library that a linker script names; empty if it is no such script.
std::string named_by_script(const std::string& text) {
  if (text.find("GROUP") == text.npos && text.find("INPUT") == text.npos) return "";
  const std::size_t so = text.find(".so");
  if (so == text.npos || text.find('(') == text.npos) return "";
  const std::size_t begin = text.find_last_of(" (\n\t", so) + 1;
  return text.substr(begin, text.find_first_of(" )\n\t", so) - begin);
}

std::string why_no_elf(const std::string& file, const std::string& head) {
  if (head.starts_with("!<arch>\n") || head.starts_with("!<thin>\n")) return kArchive;
  for (const auto& [begin, what] : kOthers) {
    if (head.starts_with(begin)) return fmt::format("it is {}; {} on this machine", what, kWanted);
  }
  if (!is_text(head)) return fmt::format("it has no ELF header; {}", kWanted);
  const std::string ending = std::filesystem::path(file).extension().string();
  if (ending == ".cpp" || ending == ".cc" || ending == ".cu" || ending == ".c") {
    return "it is source code: compile it, for example by g++ -std=c++20 -O3 -fPIC -shared -I $(attnbench --include-dir), "
           "and give the .so";
  }
  if (const std::string named = named_by_script(head); !named.empty())
    return fmt::format("it is a linker script; give the library that it names, {}", named);
  return fmt::format("it is text; {} (the name of a kernel in Python must end in .py)", kWanted);
}

/// Bytes that the file must have at least, by its header and program headers.
uintmax_t least_bytes(const std::string& file, const ElfW(Ehdr) & header) {
  uintmax_t least = uintmax_t{header.e_phoff} + uintmax_t{header.e_phnum} * sizeof(ElfW(Phdr));
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part{};
    if (!in.read(reinterpret_cast<char*>(&part), sizeof part)) break;
    if (part.p_type == PT_LOAD) least = std::max(least, uintmax_t{part.p_offset} + part.p_filesz);
  }
  return least;
}

}  // namespace

std::string why_no_library(const std::string& file) {
  std::error_code ec;
  const uintmax_t size = std::filesystem::file_size(file, ec);
  const std::string head = first_bytes(file, kTextBytes);
  if (head.empty())
    return ec || size > 0 ? "" : "it is empty: the compiler stopped, or the disk was full; build it again";
  if (!head.starts_with(ELFMAG)) return why_no_elf(file, head);
  const auto cut = [&](uintmax_t least) {
    return fmt::format("it is cut off: it has {} bytes, and needs {} at least; build or copy it again", size,
                       least);
  };
  if (head.size() < sizeof(Elf32_Ehdr)) return cut(sizeof(Elf32_Ehdr));
  const Machine its = machine_of(head), ours = machine_of(first_bytes("/proc/self/exe", sizeof(Elf32_Ehdr)));
  if (its.bits != ours.bits || its.order != ours.order || its.number != ours.number) {
    return fmt::format("it is for {}, and this machine is {}; compile it on this machine, or for it",
                       machine_text(its, ours), machine_text(ours, ours));
  }
  ElfW(Ehdr) header{};
  if (head.size() < sizeof header) return cut(sizeof header);
  std::memcpy(&header, head.data(), sizeof header);
  if (header.e_type == ET_REL)
    return "it is an object file, which is not linked; link it: g++ -shared -o mine.so FILE, compiled with -fPIC";
  if (header.e_type == ET_EXEC) return fmt::format("it is a program; {}", kWanted);
  if (header.e_type != ET_DYN) return fmt::format("it is an ELF file of type {}; {}", header.e_type, kWanted);
  const uintmax_t least = least_bytes(file, header);
  return size < least ? cut(least) : "";
}

}  // namespace attnbench
