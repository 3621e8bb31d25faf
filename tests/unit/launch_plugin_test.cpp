// What the table of a plug-in must hold. tests/cli/cli_plugin_test.cpp tests the files.
#include "harness/launch/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace attnbench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

KernelStatus supports(const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; }
Numerics numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0x1p-22}; }

/// A kernel with only the required members.
Kernel least() {
  return {.abi_version = kKernelAbiVersion,
          .name = "mine",
          .summary = "",
          .shapes = "",
          .op = Op::kAttention,
          .device = DeviceKind::kCpu,
          .features = kPackedKv,
          .supports = supports,
          .numerics = numerics,
          .launch = supports};
}

/// The refusal of a plug-in with these kernels, after `change` has changed its table.
std::string refusal(const Kernel* first, const Kernel* second,
                    const std::function<void(Plugin&)>& change = nullptr) {
  const Kernel* const kernels[] = {first, second};
  Plugin table = plugin_of(kernels);
  if (change) change(table);
  try {
    EXPECT_EQ(checked_kernels(table).size(), 2u);
  } catch (const PluginError& e) {
    return e.what();
  }
  return "";
}

std::string refusal_of(const std::function<void(Kernel&)>& change) {
  const Kernel good = least();
  Kernel k = least();
  change(k);
  return refusal(&good, &k);
}

TEST(RunPlugin, TheLeastIsTaken) {
  EXPECT_EQ(refusal_of([](Kernel&) {}), "");
}

TEST(RunPlugin, AnEntryThatLacksSomethingIsRefusedByItsPlaceAndName) {
  EXPECT_EQ(refusal_of([](Kernel& k) { k.supports = nullptr; }),
            "kernel 2 (mine) of its table lacks supports; only workspace_bytes, plan and tile may be null");
  EXPECT_THAT(refusal_of([](Kernel& k) { k.numerics = nullptr; }), HasSubstr("lacks numerics"));
  EXPECT_THAT(refusal_of([](Kernel& k) { k.launch = nullptr; }), HasSubstr("lacks launch"));
  EXPECT_THAT(refusal_of([](Kernel& k) { k.summary = nullptr; }), HasSubstr("lacks summary"));
  EXPECT_THAT(refusal_of([](Kernel& k) { k.shapes = nullptr; }), HasSubstr("lacks shapes"));
  EXPECT_THAT(refusal_of([](Kernel& k) { k.features = 0; }), HasSubstr("has no features"));
  EXPECT_EQ(refusal_of([](Kernel& k) { k.name = nullptr; }), "kernel 2 of its table has no name");
  for (const char* name : {"", "Mine", "2nd", "my kernel", "-x", "a/b", "caf\xc3\xa9"})
    EXPECT_THAT(refusal_of([&](Kernel& k) { k.name = name; }), HasSubstr("not snake_case")) << name;
  EXPECT_THAT(refusal_of([](Kernel& k) { k.abi_version = 0; }), HasSubstr("says abi_version 0; "));
  EXPECT_THAT(refusal_of([](Kernel& k) { k.op = static_cast<Op>(7); }), HasSubstr("has op 7"));
  EXPECT_THAT(refusal_of([](Kernel& k) { k.device = static_cast<DeviceKind>(-1); }),
              HasSubstr("has device -1"));
  const Kernel good = least();
  EXPECT_EQ(refusal(&good, nullptr), "entry 2 of its table is null");
}

TEST(RunPlugin, OtherHeadersAreRefusedWithBothVersions) {
  const Kernel good = least();
  const auto says = [&](const std::function<void(Plugin&)>& change) { return refusal(&good, &good, change); };
  EXPECT_EQ(says([](Plugin& p) { p.abi_version = 77; }),
            "it was compiled for kernel ABI 77, and this program has " + std::to_string(kKernelAbiVersion) +
                "; compile it again with -I $(attnbench --include-dir)");
  for (int i = 0; i < kPluginStructs; ++i)
    EXPECT_THAT(says([&](Plugin& p) { --p.struct_bytes[i]; }), HasSubstr("compiled with other headers")) << i;
  EXPECT_THAT(says([](Plugin& p) { p.struct_bytes[0] = 8; }),
              AllOf(HasSubstr("its Kernel has 8 bytes"),
                    HasSubstr("that of this program " + std::to_string(sizeof(Kernel)))));
  EXPECT_THAT(says([](Plugin& p) { p.magic = 0; }), HasSubstr("no table of kernels"));
  EXPECT_THAT(says([](Plugin& p) { p.num_kernels = 0; }), HasSubstr("lists no kernel"));
  EXPECT_THAT(says([](Plugin& p) { p.kernels = nullptr; }), HasSubstr("lists no kernel"));
  // If the version differs, nothing after it is read.
  EXPECT_THAT(says([](Plugin& p) {
                p.abi_version = 1;
                p.kernels = nullptr;
              }),
              HasSubstr("kernel ABI 1"));
}

TEST(RunPlugin, TwoKernelsOfOneNameOpAndDeviceAreRefused) {
  const Kernel mine = least();
  Kernel gpu = least(), append = least();
  gpu.device = DeviceKind::kCuda;
  append.op = Op::kKvAppend;
  const Kernel* builtin[] = {&mine};
  const LoadedPlugin a{"/a.so", "", {&gpu}}, b{"/b.so", "", {&append, &gpu}}, c{"/c.so", "", {&mine}};
  EXPECT_EQ(table_with_plugins(builtin, std::vector{a}), (std::vector<const Kernel*>{&mine, &gpu}));
  const auto says = [&](const std::vector<LoadedPlugin>& plugins) -> std::string {
    try {
      table_with_plugins(builtin, plugins);
    } catch (const PluginError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(says({a, b}),
            "/b.so: /a.so has a kernel mine for attention on cuda already; give one of them another name");
  EXPECT_EQ(
      says({c}),
      "/c.so: this program has a kernel mine for attention on cpu already; give one of them another name");
}

}  // namespace
}  // namespace attnbench
