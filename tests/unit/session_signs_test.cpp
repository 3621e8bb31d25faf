// Kernels of the cpu device get inputs with other signs and must give the same bits, apart from those signs.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/cases/case.h"
#include "harness/cases/cost.h"
#include "harness/launch/launcher.h"
#include "harness/session/session.h"
#include "harness/tensors/sign_plan.h"
#include "kernels/registry.h"

namespace attnbench {
namespace {

uint64_t digest_of(const Workload& w) {
  uint64_t all = 0;
  for (const WatchedOutput& o : w.watched_outputs()) all = all * 31 + unsigned_digest_host(o.tensor, 5);
  return all;
}

class SessionSigns : public ::testing::TestWithParam<const char*> {};

void expect_no_other_bit(const Case& c, Device& device) {
  const std::vector<const Kernel*> kernels =
      select_kernels(builtin_kernels(), c.params.op, DeviceKind::kCpu, {"cpu"});
  ASSERT_FALSE(kernels.empty());
  Workload w(device, c, layout_for(*kernels[0]), Values::kLater);
  Launcher launcher(*kernels[0], builtin_kernels(), device, w);
  w.fill_values();
  w.set_signs(plain_signs(c.params));
  w.poison_outputs();
  launcher.launch();
  const uint64_t plain = digest_of(w);
  const HostOutputs expected = w.download_outputs();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const SignPlan signs = other_signs(c.params, w.signs(), seed);
    const std::vector<LateSigns> late = w.set_signs(signs, few_channels(c.params, seed));
    for (const LateSigns& s : late) change_late_signs_host(s);
    w.poison_outputs();
    launcher.launch();
    EXPECT_EQ(digest_of(w), plain) << c.id << " seed " << seed;
    const HostOutputs got = w.download_outputs();
    EXPECT_EQ(got.lse, expected.lse) << c.id;
    // Rotation makes +0 of zeros of either sign; the digest takes -0 for 0.
    if (c.params.data != Profile::kCorners) {
      EXPECT_EQ(got.new_k, expected.new_k) << c.id;
    }
    EXPECT_EQ(got.dsinks, expected.dsinks) << c.id;
  }
  w.set_signs(plain_signs(c.params));
  EXPECT_FALSE(w.input_damage()) << c.id;
}

TEST_P(SessionSigns, ChangeNoOtherBit) {
  const Expansion e =
      expand(parse_sweep_text(std::string("name: signs\nsweeps: [") + GetParam() + "]", "test.yaml"));
  const auto device = open_device("cpu", 2);
  for (const Case& c : e.cases) expect_no_other_bit(c, *device);
}

/// The part of an id before the batch, in words: "paged16", "alibi", "window5,-1".
std::vector<std::string> words_of(const std::string& id) {
  std::vector<std::string> words(1);
  for (const char c : id.substr(0, id.rfind('/'))) {
    if (c == '/' || c == '-') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// Each key and word, in the smallest case of a file that has it.
TEST(SessionSigns, OfEveryKeyChangeNoOtherBit) {
  const auto device = open_device("cpu", 2);
  std::set<std::string> seen;
  int looked_at = 0;
  for (const char* file : {"semantics.yaml", "semantics_ops.yaml", "semantics_backward.yaml"}) {
    Expansion e = expand(load_sweep_file(std::string(ATTNBENCH_SOURCE_DIR "/configs/") + file));
    const auto bytes = [](const Case& c) { return cost_of(c).device_bytes; };
    std::stable_sort(e.cases.begin(), e.cases.end(),
                     [&](const Case& a, const Case& b) { return bytes(a) < bytes(b); });
    for (const Case& c : e.cases) {
      if (c.params.path != Path::kOneCall || c.params.bad_launch != BadLaunch::kNone) continue;
      bool fresh = false;
      for (const std::string& word : words_of(c.id)) fresh |= seen.insert(word).second;
      if (!fresh) continue;
      ++looked_at;
      expect_no_other_bit(c, *device);
    }
  }
  EXPECT_GT(looked_at, 150);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SessionSigns,
    ::testing::Values(
        "{name: a, batch: q5_q33s70, heads: [4/2, 3/1], head_dim: 40, dtype: [bf16, fp16, fp32], mask: causal}",
        "{name: b, kv: paged, block_size: 16, kv_layout: [nhd, hnd], batch: 3q1s40, kv_dtype: [same, e4m3], "
        "heads: 4/2, head_dim: 64, sinks: true, softcap: 20}",
        "{name: c, kv: paged, block_size: 16, batch: 3q2s40, append: in_call, rotary: [neox, interleaved], "
        "rotary_dim: 32, heads: 4/2, head_dim: 64}",
        "{name: d, op: kv_append, kv: paged, block_size: 16, batch: 3q2s40, heads: 2, head_dim: 64, "
        "zip: {kv_dtype: [same, e4m3, int8, int8], scales: [given, given, given, per_token]}}",
        "{name: e, op: merge_states, batch: q7, heads: 3, head_dim: 40, states: 3}",
        "{name: f, kv: paged, block_size: 16, batch: 3q1s40, heads: 4/1, head_dim: 96, head_dim_v: 64, "
        "v_is_k_view: true}",
        "{name: h, op: attention_backward, batch: q5_q33s70, zip: {heads: [4/2, 3/3], head_dim: [40, 64], head_dim_v: [24, "
        "same]}, dtype: [bf16, fp32], mask: causal, sinks: true}",
        "{name: g, batch: q9s20, heads: 4/2, head_dim: 64, kv_dtype: int8, q_dtype: int8, dropout: 0.1}",
        "{name: i, kv: paged, block_size: 16, kv_layout: [nhd, hnd], batch: 3q2s40, heads: 4/2, head_dim: 64, kv_dtype: "
        "nvfp4, zip: {head_dim_v: [same, 32, 48], v_is_k_view: [false, false, true]}, mask: causal}",
        "{name: j, kv: [paged, packed], block_size: 16, batch: 3q2s40, heads: 4/2, zip: {head_dim: [160, 576], "
        "head_dim_v: [128, 512]}, v_is_k_view: true, kv_dtype: fp8_ds_mla, mask: causal}"));

/// The rows themselves change, so that no launch sees numbers that it has seen.
TEST(SessionSigns, ChangeCachesWithScalesForBlocks) {
  const auto device = open_device("cpu", 1);
  for (
      const char* mapping :
      {"{kv: packed, batch: q2s40, heads: 4/1, head_dim: 64, kv_dtype: nvfp4}",
       "{kv: packed, batch: q2s40, heads: 4/1, head_dim: 160, head_dim_v: 128, v_is_k_view: true, kv_dtype: fp8_ds_mla}"}) {
    const Case c = expand(parse_inline_case(mapping)).cases.at(0);
    Workload w(*device, c);
    const AttentionParams p = w.params().attention;
    const auto rows = [&] {
      const auto* from = static_cast<const uint8_t*>(p.k);
      return std::vector<uint8_t>(from, from + 40 * p.k_stride_token);
    };
    w.set_signs(plain_signs(c.params));
    const std::vector<uint8_t> plain = rows();
    SignPlan all = plain_signs(c.params);
    std::fill(all.qk.begin(), all.qk.end(), uint8_t{1});
    w.set_signs(all);
    std::vector<uint8_t> changed = plain;
    for (std::size_t i = 0; i < changed.size(); ++i) {
      const auto at = static_cast<int64_t>(i) % p.k_stride_token;
      const bool tail = p.k_tail != nullptr && at >= 128;
      if (!tail) changed[i] ^= p.k_tail != nullptr ? 0x80 : 0x88;
      if (tail && at >= 132 && at % 2 == 1) changed[i] ^= 0x80;  // the upper bytes of bf16
    }
    EXPECT_EQ(rows(), changed) << mapping;
  }
}

/// A right kernel is accused of nothing, whatever its caches hold.
TEST(SessionSigns, RightKernelsPassInEveryCacheMode) {
  const auto device = open_device("cpu", 2);
  for (const char* mapping :
       {"{batch: 2q20, heads: 2, head_dim: 16}",
        "{kv: paged, block_size: 16, batch: 2q2s40, append: in_call, heads: 2, head_dim: 16}",
        "{op: kv_append, kv: paged, block_size: 16, batch: 2q2s40, heads: 2, head_dim: 16}",
        "{op: attention_backward, batch: 2q20, heads: 4/2, head_dim: 16}",
        "{op: merge_states, batch: q7, heads: 2, head_dim: 16}"}) {
    const Case c = expand(parse_inline_case(mapping)).cases.at(0);
    const Kernel* kernel = select_kernels(builtin_kernels(), c.params.op, DeviceKind::kCpu, {"cpu"}).at(0);
    for (const CacheMode cache : {CacheMode::kCold, CacheMode::kHot, CacheMode::kRotate}) {
      SessionOptions options;
      options.table = builtin_kernels();
      options.timing.cache = cache;
      options.timing.ceilings = false;
      options.timing.max_samples = 10;
      bool lost = false;
      const Record r = run_item({&c, kernel}, *device, options, lost);
      // Such a case is too small for a rotating cache, if the machine's is large.
      if (cache == CacheMode::kRotate && r.status == Status::kSkip) continue;
      EXPECT_EQ(r.status, Status::kPass) << c.id << " " << cache_mode_name(cache) << ": " << r.reason;
      ASSERT_TRUE(r.time);
      EXPECT_GE(r.time->copies, 2);
      EXPECT_GE(r.time->watch.launches, 10);
    }
  }
}

/// The harness itself uses more threads than the kernel, which is not to be accused of them.
TEST(SessionSigns, AKernelWithOneThreadIsNotAccused) {
  const auto device = open_device("cpu", 1);
  const Case c = expand(parse_inline_case("{batch: 2q256, heads: 8/4, head_dim: 64}")).cases.at(0);
  const Kernel* kernel = select_kernels(builtin_kernels(), c.params.op, DeviceKind::kCpu, {"cpu"}).at(0);
  SessionOptions options;
  options.table = builtin_kernels();
  options.timing.ceilings = false;
  options.timing.max_samples = 10;
  bool lost = false;
  const Record r = run_item({&c, kernel}, *device, options, lost);
  EXPECT_EQ(r.status, Status::kPass) << r.reason;
}

TEST(SessionSigns, ChannelsThatTurnTogetherChangeTogether) {
  CaseParams p;
  p.num_heads_q = p.num_heads_kv = 2;
  p.head_dim = 16;
  p.rotary_dim = 8;
  for (const Rotary r : {Rotary::kNeox, Rotary::kInterleaved}) {
    p.rotary = r;
    const SignPlan s = other_signs(p, plain_signs(p), 3);
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t a = h * 16 + (r == Rotary::kNeox ? i : 2 * i);
        EXPECT_EQ(s.qk[a], s.qk[r == Rotary::kNeox ? a + 4 : a + 1]);
      }
    }
    EXPECT_NE(s, plain_signs(p));
  }
}

TEST(SessionSigns, EachHeadGetsOtherSignsInAFewChannels) {
  CaseParams p;
  p.num_heads_q = p.num_heads_kv = 4;
  p.head_dim = 80;
  SignPlan s = plain_signs(p);
  std::set<std::size_t> changed;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const SignPlan next = other_signs(p, s, seed);
    for (const auto& [before, after] : {std::pair(s.qk, next.qk), std::pair(s.v, next.v)}) {
      for (std::size_t h = 0; h < 4; ++h) {
        std::set<std::size_t> places;
        for (std::size_t c = 80 * h; c < 80 * (h + 1); ++c) {
          if (before[c] != after[c]) places.insert(c);
        }
        ASSERT_FALSE(places.empty());
        EXPECT_EQ((*places.begin() - 80 * h) / 16, (*places.rbegin() - 80 * h) / 16);
        changed.insert(places.begin(), places.end());
      }
    }
    s = next;
  }
  EXPECT_EQ(changed.size(), 320u) << "each channel has its turn";
}

TEST(SessionSigns, UntilFilledTensorsHoldPoison) {
  const Expansion e = expand(parse_inline_case("{batch: q5, heads: 2, head_dim: 16}"));
  const auto device = open_device("cpu", 1);
  Workload w(*device, e.cases[0], {}, Values::kLater);
  const AttentionParams p = w.params().attention;
  for (const void* tensor : {p.q, p.k, p.v}) {
    EXPECT_EQ(*static_cast<const uint16_t*>(tensor), 0xffff);
  }
  EXPECT_EQ(p.cu_seqlens_q[1], 5) << "lengths are there";
  w.fill_values();
  for (const void* tensor : {p.q, p.k, p.v}) {
    EXPECT_NE(*static_cast<const uint16_t*>(tensor), 0xffff);
  }
}

}  // namespace
}  // namespace attnbench
