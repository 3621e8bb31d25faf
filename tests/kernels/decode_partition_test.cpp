// The division of decode work into parts: every tile once, equal parts, no collisions of partial results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/common/partition.cuh"

namespace attnbench::hopper {
namespace {

struct Lengths {
  int32_t q;
  int32_t k;
};

struct Division {
  int32_t parts;
  int32_t min_units = 1;
  int32_t segment_cost = 0;
};

/// Divides a batch as the kernel's blocks do, each block by itself, and checks everything that the kernel
/// relies on.
void check_division(const std::vector<Lengths>& batch, const Division& d, const std::string& name) {
  SCOPED_TRACE(name + ", B " + std::to_string(batch.size()) + ", parts " + std::to_string(d.parts) +
               ", min_units " + std::to_string(d.min_units) + ", segment_cost " +
               std::to_string(d.segment_cost));
  std::vector<int32_t> tiles, units, first_unit;
  int32_t total = 0;
  for (const Lengths& s : batch) {
    const TileRange range = tiles_of_keys(0, s.k, 64);
    tiles.push_back(range.end - range.begin);
    units.push_back(sequence_units(s.q, tiles.back(), d.segment_cost));
    first_unit.push_back(total);
    total += units.back();
  }
  const Divisor by_parts(static_cast<uint32_t>(d.parts));
  const Partition partition = make_partition(total, d.parts, by_parts, d.min_units, d.segment_cost);
  ASSERT_GE(partition.units_per_part, 1);
  ASSERT_GE(int64_t{partition.units_per_part} * d.parts, total) << "the parts hold all units";
  const int32_t equal = (total + d.parts - 1) / d.parts;
  ASSERT_LE(partition.units_per_part, std::max({equal, d.min_units, 1}));

  std::set<int32_t> partials;
  std::vector<int32_t> tiles_of_part(d.parts), segments_of_part(d.parts);
  for (std::size_t b = 0; b < batch.size(); ++b) {
    if (batch[b].q == 0) {
      ASSERT_EQ(units[b], 0);
      continue;
    }
    // Only parts that meet the sequence have units of it. The others are checked too if there are few parts.
    const int32_t length = partition.units_per_part;
    const bool ask_all = batch.size() * static_cast<std::size_t>(d.parts) < 200000;
    const int32_t from = ask_all ? 0 : first_unit[b] / length;
    const int32_t to = ask_all ? d.parts - 1 : (first_unit[b] + units[b] - 1) / length;
    const Splits splits = splits_of(partition, first_unit[b], tiles[b]);
    int32_t next_tile = 0, seen = 0;
    for (int32_t part = from; part <= to; ++part) {
      const Segment s = segment_of(partition, part, first_unit[b], tiles[b]);
      if (!s.exists) continue;
      ASSERT_LE(part * length, first_unit[b] + units[b] - 1) << "the part's walk comes by this sequence";
      ASSERT_GT((part + 1) * length, first_unit[b]);
      ASSERT_EQ(s.begin, next_tile) << "every tile once, in order";
      ASSERT_LE(s.end, tiles[b]);
      ASSERT_TRUE(s.begin < s.end || tiles[b] == 0);
      ASSERT_EQ(splits.first_part + seen, part) << "split by split";
      if (splits.count > 1) {
        const int32_t partial = partial_of(splits.first_part, splits.first_partial, seen);
        ASSERT_GE(partial, 0);
        ASSERT_LT(partial, 2 * d.parts);
        ASSERT_TRUE(partials.insert(partial).second) << "partial " << partial << " is somebody else's";
      }
      tiles_of_part[part] += s.end - s.begin;
      ++segments_of_part[part];
      next_tile = s.end;
      ++seen;
    }
    ASSERT_EQ(next_tile, tiles[b]) << "all tiles";
    ASSERT_EQ(seen, splits.count) << "as many arrivals as are waited for; one also without tiles";
  }
  for (int32_t part = 0; part < d.parts; ++part) {
    ASSERT_LE(tiles_of_part[part], partition.units_per_part);
    ASSERT_LE(segments_of_part[part], partition.units_per_part);
  }
}

/// The same for shares.
void check_shares(const std::vector<Lengths>& batch, int32_t parts, int32_t least, const std::string& name) {
  SCOPED_TRACE(name + ", B " + std::to_string(batch.size()) + ", parts " + std::to_string(parts) +
               ", least " + std::to_string(least));
  std::vector<int32_t> tiles;
  for (const Lengths& s : batch) tiles.push_back(tiles_of_keys(0, s.k, 64).end);
  const int32_t longest = tiles.empty() ? 0 : *std::max_element(tiles.begin(), tiles.end());
  const auto count = static_cast<int32_t>(batch.size());
  const Shares shares = limit_shares(make_shares(count, parts), longest, least);
  ASSERT_TRUE(shares.sequences == 1 || shares.parts == 1);
  std::set<int32_t> partials;
  std::vector<int32_t> next_tile(count), seen(count);
  for (int32_t part = 0; part < parts; ++part) {
    const int32_t first = first_sequence_of(shares, part);
    int32_t units = 0, splits_here = 0;
    for (int32_t b = first; b < std::min(first + shares.sequences, count); ++b) {
      const Splits splits = splits_of(shares, b, tiles[b]);
      const Segment s = segment_of(splits, part, tiles[b]);
      if (!s.exists) continue;
      ASSERT_EQ(s.begin, next_tile[b]) << "every tile once, in order";
      ASSERT_TRUE(s.begin < s.end || tiles[b] == 0);
      ASSERT_EQ(splits.first_part + seen[b], part) << "split by split";
      if (splits.count > 1) {
        ++splits_here;
        const int32_t partial = partial_of(splits.first_part, splits.first_partial, seen[b]);
        ASSERT_LT(partial, 2 * parts);
        ASSERT_TRUE(partials.insert(partial).second) << "partial " << partial << " is somebody else's";
      }
      units += 1 + s.end - s.begin;
      next_tile[b] = s.end;
      ++seen[b];
    }
    ASSERT_LE(splits_here, 1);
    ASSERT_LE(units, most_units_of(shares, longest, 1));
  }
  for (int32_t b = 0; b < count; ++b) {
    ASSERT_EQ(next_tile[b], tiles[b]) << "all tiles";
    ASSERT_EQ(seen[b], splits_of(shares, b, tiles[b]).count);
  }
}

void check_divisions(const std::vector<Lengths>& batch, const std::string& name) {
  for (const int32_t parts : {1, 2, 3, 16, 33, 132, 264}) {
    for (const int32_t least : {1, 2, 5}) {
      check_shares(batch, parts, least, name);
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (const int32_t min_units : {1, 4}) {
      for (const int32_t segment_cost : {0, 1, 3}) {
        check_division(batch, {parts, min_units, segment_cost}, name);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Divisor, DividesExactly) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  std::mt19937 random(5);
  std::vector<int32_t> divisors = {kMax, kMax - 1, 1 << 30, (1 << 30) + 1, 65535, 65536, 65537};
  for (int32_t d = 1; d <= 1100; ++d) divisors.push_back(d);
  for (int i = 0; i < 2000; ++i) divisors.push_back(1 + static_cast<int32_t>(random() % kMax));
  for (const int32_t d : divisors) {
    const Divisor divisor(static_cast<uint32_t>(d));
    std::vector<int32_t> numbers = {0, 1, kMax, kMax - 1, kMax / d * d, kMax / d * d - 1};
    for (int i = 0; i < 200; ++i) numbers.push_back(static_cast<int32_t>(random() % kMax));
    for (int32_t k = 1; k < 20 && d <= kMax / k; ++k) numbers.insert(numbers.end(), {k * d - 1, k * d});
    for (const int32_t n : numbers) ASSERT_EQ(divisor.divide(n), n / d) << n << " / " << d;
  }
}

TEST(DecodePartition, TilesHoldTheKeys) {
  EXPECT_EQ(tiles_of_keys(0, 0, 64).end, 0);
  EXPECT_EQ(tiles_of_keys(70, 70, 64).end, 0);
  for (const int32_t begin : {0, 1, 63, 64, 65, 127, 128, 1000}) {
    for (const int32_t count : {1, 2, 63, 64, 65, 128, 129}) {
      for (const int32_t tokens : {64, 128}) {
        const TileRange t = tiles_of_keys(begin, begin + count, tokens);
        EXPECT_LE(t.begin * tokens, begin);
        EXPECT_GT((t.begin + 1) * tokens, begin);
        EXPECT_GE(t.end * tokens, begin + count);
        EXPECT_LT((t.end - 1) * tokens, begin + count);
      }
    }
  }
}

TEST(DecodePartition, UniformBatches) {
  for (const int32_t b : {1, 2, 8, 32, 128}) {
    for (const int32_t k : {1, 64, 1024, 8192, 32768}) {
      check_divisions(std::vector<Lengths>(b, Lengths{1, k}), "uniform " + std::to_string(k));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(DecodePartition, EmptySequences) {
  check_divisions({}, "no sequences");
  check_divisions({{0, 0}, {0, 100}}, "no queries");
  check_divisions({{1, 0}}, "no keys");
  check_divisions({{1, 0}, {1, 0}, {0, 7}, {1, 5000}, {1, 0}, {0, 0}, {2, 64}, {1, 0}}, "some of each");
  check_divisions(std::vector<Lengths>(700, Lengths{1, 0}), "many without keys");
}

TEST(DecodePartition, RaggedBatches) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<Lengths> batch(1 + random() % 200);
    const int32_t longest = 1 << (4 + random() % 12);
    for (Lengths& s : batch) {
      s.q = random() % 6 == 0 ? 0 : 1 + static_cast<int32_t>(random() % 4);
      s.k = random() % 5 == 0 ? 0 : static_cast<int32_t>(random() % longest);
    }
    check_divisions(batch, "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
}

TEST(DecodePartition, LargeBatches) {
  std::mt19937 random(11);
  for (const std::size_t size : {1000u, 4096u}) {
    std::vector<Lengths> batch(size);
    for (Lengths& s : batch) s = {static_cast<int32_t>(random() % 3), static_cast<int32_t>(random() % 3000)};
    batch[size / 2] = {1, 131072};
    check_divisions(batch, "large");
    if (HasFatalFailure()) return;
  }
}

TEST(DecodePartition, EqualPartsWhereLengthsAllowIt) {
  // 16 parts for 512 tiles: 32 tiles each, which is two sequences. Nothing is split.
  const Partition p = make_partition(512, 16, Divisor(16), 1, 0);
  EXPECT_EQ(p.units_per_part, 32);
  for (int32_t b = 0; b < 32; ++b) EXPECT_EQ(splits_of(p, 16 * b, 16).count, 1);
}

TEST(DecodePartition, PartsFitTheBatch) {
  EXPECT_EQ(fit_parts(33, 32), 32);   // a sequence each
  EXPECT_EQ(fit_parts(33, 64), 32);   // two each
  EXPECT_EQ(fit_parts(33, 16), 32);   // half a sequence each
  EXPECT_EQ(fit_parts(132, 1), 132);  // all parts share the only sequence
  EXPECT_EQ(fit_parts(33, 24), 33);   // 24 would leave a quarter of the GPU idle
  EXPECT_EQ(fit_parts(16, 30), 15);
  EXPECT_EQ(fit_parts(1, 5), 1);
  EXPECT_EQ(fit_parts(33, 0), 33);
}

TEST(DecodePartition, SharesOfLikeLengths) {
  // 66 parts for 32 sequences: two each, 32 of 64 tiles in each.
  const Shares two = limit_shares(make_shares(32, 66), 64, 2);
  EXPECT_EQ(two.parts, 2);
  EXPECT_EQ(most_units_of(two, 64, 4), 36);
  EXPECT_EQ(segment_of(splits_of(two, 5, 64), 11, 64).begin, 32);
  // 128 sequences: two whole ones in each part, so nothing is merged.
  const Shares whole = limit_shares(make_shares(128, 66), 64, 2);
  EXPECT_EQ(whole.sequences, 2);
  EXPECT_EQ(splits_of(whole, 5, 64).count, 1);
  // A short sequence has few splits: two tiles at least in each.
  EXPECT_EQ(limit_shares(make_shares(1, 66), 64, 2).parts, 32);
}

}  // namespace
}  // namespace attnbench::hopper
