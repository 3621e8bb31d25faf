// Replaces a function for all libraries of this process but the caller's, in their tables of imported
// functions (GOT). For cheats that patch the program.
#pragma once

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace attnbench::cheats {

struct Replacement {
  const char* symbol;
  void* function;
  int places = 0;  ///< entries that were changed
};

namespace got {

#if defined(__aarch64__)
constexpr unsigned kCall = R_AARCH64_JUMP_SLOT, kAddress = R_AARCH64_GLOB_DAT;
#else
constexpr unsigned kCall = R_X86_64_JUMP_SLOT, kAddress = R_X86_64_GLOB_DAT;
#endif

/// Address of a dynamic entry: glibc relocates some of them, other loaders do not.
template <class T>
T* at(const dl_phdr_info* info, ElfW(Addr) value) {
  return reinterpret_cast<T*>(value < info->dlpi_addr ? info->dlpi_addr + value : value);
}

inline void write_entry(void** entry, void* function) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  void* begin = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(entry) / page * page);
  if (mprotect(begin, 2 * page, PROT_READ | PROT_WRITE) != 0 &&
      mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) {
    return;
  }
  *entry = function;
}

inline int replace_in(dl_phdr_info* info, std::size_t, void* data) {
  auto& r = *static_cast<Replacement*>(data);
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& h = info->dlpi_phdr[i];
    const ElfW(Addr) begin = info->dlpi_addr + h.p_vaddr;
    const auto own = reinterpret_cast<ElfW(Addr)>(&replace_in);
    if (h.p_type == PT_LOAD && own >= begin && own < begin + h.p_memsz) return 0;
    if (h.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
  }
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * tables[2] = {};
  std::size_t bytes[2] = {};
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) value = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_SYMTAB) symbols = at<const ElfW(Sym)>(info, value);
    if (dynamic->d_tag == DT_STRTAB) strings = at<const char>(info, value);
    if (dynamic->d_tag == DT_JMPREL) tables[0] = at<const ElfW(Rela)>(info, value);
    if (dynamic->d_tag == DT_RELA) tables[1] = at<const ElfW(Rela)>(info, value);
    if (dynamic->d_tag == DT_PLTRELSZ) bytes[0] = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_RELASZ) bytes[1] = dynamic->d_un.d_val;
  }
  if (symbols == nullptr || strings == nullptr) return 0;
  for (int t = 0; t < 2; ++t) {
    for (std::size_t n = 0; tables[t] != nullptr && n < bytes[t] / sizeof(ElfW(Rela)); ++n) {
      const ElfW(Rela)& entry = tables[t][n];
      const auto symbol = ELF64_R_SYM(entry.r_info);
      const auto type = ELF64_R_TYPE(entry.r_info);
      if (symbol == 0 || (type != kCall && type != kAddress)) continue;
      if (std::strcmp(strings + symbols[symbol].st_name, r.symbol) != 0) continue;
      write_entry(reinterpret_cast<void**>(info->dlpi_addr + entry.r_offset), r.function);
      ++r.places;
    }
  }
  return 0;
}

}  // namespace got

/// Returns the number of entries that were changed.
inline int replace_function(const char* symbol, void* function) {
  Replacement r{symbol, function};
  dl_iterate_phdr(got::replace_in, &r);
  return r.places;
}

}  // namespace attnbench::cheats
