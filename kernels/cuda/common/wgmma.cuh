// Asynchronous matrix products of a warpgroup (4 warps). PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions".
//
// D (64 x N, fp32, in registers) += A (64 x 16) B (16 x N), 16-bit A and B; in e4m3 and int8 A (64 x 32) B (32 x
// N), and D is int32 in int8.
// Thread t of the warpgroup holds in d[4 * j + 2 * h + c] the element of row 16 * (t / 32) + (t % 32) / 4 + 8
// * h and column 8 * j + 2 * (t % 4) + c. A 16-bit A operand in registers has the same layout, in pairs: word
// 2 * j + h holds c = 0, 1 of j = 0, 1. So accumulators 8k .. 8k + 7 of one product, rounded in pairs, are the
// A operand of step k of the next product.
#pragma once

#include <cstdint>

#include "kernels/contract/dtype.h"

namespace attnbench::hopper {

/// Orders this warpgroup's register accesses before its next wgmma. Required before each group of products.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Makes this thread's writes to shared memory visible to products that any warp issues after the next
/// barrier.
__device__ __forceinline__ void fence_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Ends a group of products; groups complete in order.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kPending groups are in flight. Until a group has completed, its accumulators and
/// register operands must not be touched.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Descriptor of a tile in shared memory in the swizzle of kRowBytes bytes, 128 or 64. `tile` is aligned to a
/// swizzle atom: 8 rows of kRowBytes bytes. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions:
/// Matrix Descriptor Format".
///
/// K-major operands (Q, K: rows hold the summed dimension): `leading_bytes` is ignored.
/// MN-major operands (V: rows are the summed dimension): `leading_bytes` leads to the next kRowBytes / 2 columns.
/// kGroupBytes leads to the next 8 rows of a chunk.
///
/// All lanes construct it together, with the same arguments. The shuffle tells the compiler that the value is
/// the same in all lanes. The compiler then advances the descriptor in uniform registers, where wgmma reads
/// it, with a quarter of the instructions. The shuffle has latency, so construct the descriptor ahead of its
/// use.
template <int kGroupBytes = 1024, int kRowBytes = 128>
struct SwizzledTile {
  uint32_t low;  ///< address / 16 and leading_bytes / 16, 14 bits each, from bits 0 and 16

  /// In a cluster, the bits of an address above the 18 of shared memory hold the rank of its block.
  __device__ __forceinline__ SwizzledTile(const void* tile, uint32_t leading_bytes)
      : low(__shfl_sync(
            ~0u,
            (static_cast<uint32_t>(__cvta_generic_to_shared(tile)) & 0x3ffff) >> 4 | leading_bytes >> 4 << 16,
            0)) {}

  /// The descriptor `bytes` bytes further on. Shared memory ends below 2^18, so the sum has no carry.
  __device__ __forceinline__ uint64_t at(uint32_t bytes) const {
    static_assert(kRowBytes == 128 || kRowBytes == 64);
    constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : 2;
    return (kSwizzle << 62 | uint64_t{kGroupBytes >> 4} << 32) | (low + bytes / 16);
  }
};

/// d (64 x 8) += A B, both in shared memory: B K-major, A K-major or MN-major. accumulate = 0 ignores what d
/// held.
template <DType kType, bool kTransposedA>
__device__ __forceinline__ void wgmma_m64n8(float (&d)[4], uint64_t a, uint64_t b, int accumulate) {
  static_assert(kType == DType::kBf16 || kType == DType::kFp16);
  if constexpr (kType == DType::kBf16) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, %7, 0;}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposedA ? 1 : 0));
  } else {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, %7, 0;}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposedA ? 1 : 0));
  }
}

/// Products with kColumns columns of B, for the widths that the kernels use.
///   from_shared: A K-major and B K-major, both in shared memory
///   from_shared_transposed: B MN-major, A MN-major if kTransposedA, both in shared memory, in 16 bits
///   from_registers: A in registers, B in shared memory, MN-major; in e4m3 K-major
/// accumulate = 0 ignores what d held.
template <int kColumns>
struct Wgmma;

// Operand names %0 .. %127 and the accumulators behind them, in groups of eight.
// clang-format off
#define ATTNBENCH_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define ATTNBENCH_R1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define ATTNBENCH_R2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define ATTNBENCH_R3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define ATTNBENCH_R4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define ATTNBENCH_R5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTNBENCH_R6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define ATTNBENCH_R7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define ATTNBENCH_R8 "%64,%65,%66,%67,%68,%69,%70,%71"
#define ATTNBENCH_R9 "%72,%73,%74,%75,%76,%77,%78,%79"
#define ATTNBENCH_R10 "%80,%81,%82,%83,%84,%85,%86,%87"
#define ATTNBENCH_R11 "%88,%89,%90,%91,%92,%93,%94,%95"
#define ATTNBENCH_R12 "%96,%97,%98,%99,%100,%101,%102,%103"
#define ATTNBENCH_R13 "%104,%105,%106,%107,%108,%109,%110,%111"
#define ATTNBENCH_R14 "%112,%113,%114,%115,%116,%117,%118,%119"
#define ATTNBENCH_R15 "%120,%121,%122,%123,%124,%125,%126,%127"
#define ATTNBENCH_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATTNBENCH_NAMES32 ATTNBENCH_R0 "," ATTNBENCH_R1 "," ATTNBENCH_R2 "," ATTNBENCH_R3
#define ATTNBENCH_REGS32 ATTNBENCH_D8(0), ATTNBENCH_D8(8), ATTNBENCH_D8(16), ATTNBENCH_D8(24)
#define ATTNBENCH_NAMES40 ATTNBENCH_NAMES32 "," ATTNBENCH_R4
#define ATTNBENCH_REGS40 ATTNBENCH_REGS32, ATTNBENCH_D8(32)
#define ATTNBENCH_NAMES48 ATTNBENCH_NAMES40 "," ATTNBENCH_R5
#define ATTNBENCH_REGS48 ATTNBENCH_REGS40, ATTNBENCH_D8(40)
#define ATTNBENCH_NAMES64 ATTNBENCH_NAMES40 "," ATTNBENCH_R5 "," ATTNBENCH_R6 "," ATTNBENCH_R7
#define ATTNBENCH_REGS64 ATTNBENCH_REGS40, ATTNBENCH_D8(40), ATTNBENCH_D8(48), ATTNBENCH_D8(56)
#define ATTNBENCH_NAMES80 ATTNBENCH_NAMES64 "," ATTNBENCH_R8 "," ATTNBENCH_R9
#define ATTNBENCH_REGS80 ATTNBENCH_REGS64, ATTNBENCH_D8(64), ATTNBENCH_D8(72)
#define ATTNBENCH_NAMES88 ATTNBENCH_NAMES80 "," ATTNBENCH_R10
#define ATTNBENCH_REGS88 ATTNBENCH_REGS80, ATTNBENCH_D8(80)
#define ATTNBENCH_NAMES96 ATTNBENCH_NAMES88 "," ATTNBENCH_R11
#define ATTNBENCH_REGS96 ATTNBENCH_REGS88, ATTNBENCH_D8(88)
#define ATTNBENCH_NAMES128 ATTNBENCH_NAMES96 "," ATTNBENCH_R12 "," ATTNBENCH_R13 "," ATTNBENCH_R14 "," ATTNBENCH_R15
#define ATTNBENCH_REGS128 ATTNBENCH_REGS96, ATTNBENCH_D8(96), ATTNBENCH_D8(104), ATTNBENCH_D8(112), ATTNBENCH_D8(120)

#define ATTNBENCH_SHARED(columns, types, transposed, count, a_name, b_name, flag) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " flag ", 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n" #columns types " {" ATTNBENCH_NAMES##count "}, " \
               a_name ", " b_name ", p, 1, 1" transposed ";}\n" \
               : ATTNBENCH_REGS##count : "l"(a), "l"(b), "r"(accumulate))
#define ATTNBENCH_REGISTERS(columns, types, transposed, count, a0, a1, a2, a3, b_name, flag) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " flag ", 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n" #columns types " {" ATTNBENCH_NAMES##count "}, {" \
               a0 "," a1 "," a2 "," a3 "}, " b_name ", p, 1, 1" transposed ";}\n" \
               : ATTNBENCH_REGS##count : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

// Arguments: columns; n = columns / 2 accumulators per thread; names %n .. %(n + 5) of the operands behind
// them.
#define ATTNBENCH_WGMMA(columns, n, n0, n1, n2, n3, n4, n5) \
  template <> \
  struct Wgmma<columns> { \
    template <DType kType> \
    __device__ __forceinline__ static void from_shared(float (&d)[n], uint64_t a, uint64_t b, int accumulate) { \
      if constexpr (kType == DType::kE4m3) { \
        ATTNBENCH_SHARED(columns, "k32.f32.e4m3.e4m3", "", n, n0, n1, n2); \
      } else if constexpr (kType == DType::kBf16) { \
        ATTNBENCH_SHARED(columns, "k16.f32.bf16.bf16", ", 0, 0", n, n0, n1, n2); \
      } else { \
        ATTNBENCH_SHARED(columns, "k16.f32.f16.f16", ", 0, 0", n, n0, n1, n2); \
      } \
    } \
    template <DType kType, bool kTransposedA> \
    __device__ __forceinline__ static void from_shared_transposed(float (&d)[n], uint64_t a, uint64_t b, int accumulate) { \
      if constexpr (kType == DType::kBf16 && kTransposedA) { \
        ATTNBENCH_SHARED(columns, "k16.f32.bf16.bf16", ", 1, 1", n, n0, n1, n2); \
      } else if constexpr (kType == DType::kBf16) { \
        ATTNBENCH_SHARED(columns, "k16.f32.bf16.bf16", ", 0, 1", n, n0, n1, n2); \
      } else if constexpr (kTransposedA) { \
        ATTNBENCH_SHARED(columns, "k16.f32.f16.f16", ", 1, 1", n, n0, n1, n2); \
      } else { \
        ATTNBENCH_SHARED(columns, "k16.f32.f16.f16", ", 0, 1", n, n0, n1, n2); \
      } \
    } \
    template <DType kType> \
    __device__ __forceinline__ static void from_registers(float (&d)[n], const uint32_t (&a)[4], uint64_t b, int accumulate) { \
      if constexpr (kType == DType::kE4m3) { \
        ATTNBENCH_REGISTERS(columns, "k32.f32.e4m3.e4m3", "", n, n0, n1, n2, n3, n4, n5); \
      } else if constexpr (kType == DType::kBf16) { \
        ATTNBENCH_REGISTERS(columns, "k16.f32.bf16.bf16", ", 1", n, n0, n1, n2, n3, n4, n5); \
      } else { \
        ATTNBENCH_REGISTERS(columns, "k16.f32.f16.f16", ", 1", n, n0, n1, n2, n3, n4, n5); \
      } \
    } \
  }
ATTNBENCH_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37");
ATTNBENCH_WGMMA(80, 40, "%40", "%41", "%42", "%43", "%44", "%45");
ATTNBENCH_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52", "%53");
ATTNBENCH_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69");
ATTNBENCH_WGMMA(160, 80, "%80", "%81", "%82", "%83", "%84", "%85");
ATTNBENCH_WGMMA(176, 88, "%88", "%89", "%90", "%91", "%92", "%93");
ATTNBENCH_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101");
ATTNBENCH_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133");
#define ATTNBENCH_U8(i) "+r"(u[i]), "+r"(u[i + 1]), "+r"(u[i + 2]), "+r"(u[i + 3]), "+r"(u[i + 4]), "+r"(u[i + 5]), "+r"(u[i + 6]), "+r"(u[i + 7])
// clang-format on

/// u (64 x 80) += A (64 x 32) B (32 x 80) in int8, both K-major in shared memory; int32 sums. accumulate = 0 ignores what
/// u held.
__device__ __forceinline__ void wgmma_int8(int32_t (&u)[40], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %42, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n80k32.s32.s8.s8 {" ATTNBENCH_NAMES40 "}, %40, %41, p;}\n"
      : ATTNBENCH_U8(0), ATTNBENCH_U8(8), ATTNBENCH_U8(16), ATTNBENCH_U8(24), ATTNBENCH_U8(32)
      : "l"(a), "l"(b), "r"(accumulate));
}
#undef ATTNBENCH_U8
#undef ATTNBENCH_R0
#undef ATTNBENCH_R1
#undef ATTNBENCH_R2
#undef ATTNBENCH_R3
#undef ATTNBENCH_R4
#undef ATTNBENCH_R5
#undef ATTNBENCH_R6
#undef ATTNBENCH_R7
#undef ATTNBENCH_R8
#undef ATTNBENCH_R9
#undef ATTNBENCH_R10
#undef ATTNBENCH_R11
#undef ATTNBENCH_R12
#undef ATTNBENCH_R13
#undef ATTNBENCH_R14
#undef ATTNBENCH_R15
#undef ATTNBENCH_D8
#undef ATTNBENCH_NAMES32
#undef ATTNBENCH_REGS32
#undef ATTNBENCH_NAMES40
#undef ATTNBENCH_REGS40
#undef ATTNBENCH_NAMES48
#undef ATTNBENCH_REGS48
#undef ATTNBENCH_NAMES64
#undef ATTNBENCH_REGS64
#undef ATTNBENCH_NAMES80
#undef ATTNBENCH_REGS80
#undef ATTNBENCH_NAMES88
#undef ATTNBENCH_REGS88
#undef ATTNBENCH_NAMES96
#undef ATTNBENCH_REGS96
#undef ATTNBENCH_NAMES128
#undef ATTNBENCH_REGS128
#undef ATTNBENCH_SHARED
#undef ATTNBENCH_REGISTERS
#undef ATTNBENCH_WGMMA

}  // namespace attnbench::hopper
