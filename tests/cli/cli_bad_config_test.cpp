// Files with one mistake each: exit code 2, the place as FILE:LINE:COLUMN, what is wrong and what would be
// right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct BadConfig {
  const char* name;
  const char* text;
  const char* place;  ///< "LINE:COLUMN"
  std::vector<const char*> says;
};

void PrintTo(const BadConfig& bad, std::ostream* out) { *out << bad.name; }

const BadConfig kBadConfigs[] = {
    // Keys.
    {"UnknownTopLevelKey",
     "nmae: x\nsweeps: [{batch: q4}]\n",
     "1:1",
     {"unknown key 'nmae'", "did you mean 'name'", "sweeps"}},
    {"SweepKeyAtTopLevel",
     "name: x\nbatch: q4\nsweeps: [{batch: q4}]\n",
     "2:1",
     {"'batch'", "belongs in a sweep"}},
    {"UnknownSweepKey",
     "name: x\nsweeps:\n  - name: a\n    batch: q4\n    blok_size: 16\n",
     "5:5",
     {"unknown key 'blok_size' in sweep 'a'", "did you mean 'block_size'"}},
    {"UnknownDefaultsKey",
     "name: x\ndefaults: {batch: q4, mast: causal}\nsweeps: [{kv: packed}]\n",
     "2:23",
     {"unknown key 'mast' in defaults", "did you mean 'mask'"}},
    {"SeedInASweep",
     "name: x\nsweeps:\n  - batch: q4\n    seed: 3\n",
     "4:5",
     {"'seed'", "top level", "--seed"}},
    {"KeyTwice",
     "name: x\nsweeps:\n  - batch: q4\n    kv: packed\n    batch: q5\n",
     "5:5",
     {"'batch' stands twice", "line 3"}},
    {"NoName", "sweeps: [{batch: q4}]\n", "1:1", {"'name' is missing"}},
    {"NoSweeps", "name: x\n", "1:1", {"'sweeps' is missing"}},
    {"BatchesInBraces",
     "name: x\nsweeps: [{batch: {q16, q32}}]\n",
     "2:19",
     {"unknown key 'q16' in 'batch'", "braces make a mapping, several batches are a list: [q16, q32]"}},
    // Structure.
    {"Empty", "# nothing but a comment\n", "1:1", {"is empty"}},
    {"RootIsAList", "- name: x\n", "1:1", {"a list", "expected a mapping"}},
    {"UnclosedBracket", "name: x\nsweeps: [{batch: q4}\n", "3:1", {"YAML syntax"}},
    {"TwoDocuments", "name: x\nsweeps: [{batch: q4}]\n---\nname: y\n", "3:1", {"second YAML document"}},
    {"SweepIsAWord", "name: x\nsweeps: [prefill]\n", "2:10", {"'prefill'", "expected a mapping"}},
    {"SweepsIsAMapping", "name: x\nsweeps: {batch: q4}\n", "2:9", {"'sweeps'", "expected a list"}},
    {"SweepNameTwice",
     "name: x\nsweeps:\n  - {name: a, batch: q4}\n  - {name: a, batch: q5}\n",
     "4:5",
     {"'a' is given twice"}},
    {"EmptyAxis",
     "name: x\nsweeps:\n  - batch: q4\n    head_dim: []\n",
     "4:15",
     {"'head_dim'", "list is empty"}},
    // Values.
    {"UnknownWord",
     "name: x\nsweeps:\n  - {batch: q4, mask: casual}\n",
     "3:23",
     {"key 'mask'", "'casual'", "did you mean 'causal'", "none"}},
    {"UnknownDType",
     "name: x\nsweeps: [{batch: q4, dtype: fp8}]\n",
     "2:29",
     {"key 'dtype'", "bf16", "fp16", "fp32"}},
    {"WordForAnInteger",
     "name: x\nsweeps:\n  - batch: q4\n    head_dim: big\n",
     "4:15",
     {"key 'head_dim'", "'big'", "an integer from 1 to 576"}},
    {"IntegerTooLarge",
     "name: x\nsweeps:\n  - batch: q4\n    head_dim: [64, 577]\n",
     "4:20",
     {"'577'", "from 1 to 576"}},
    {"IntegerTooSmall",
     "name: x\nsweeps: [{batch: q4, block_size: 0}]\n",
     "2:34",
     {"'block_size'", "from 1 to 65536"}},
    {"LeadingZero", "name: x\nsweeps: [{batch: q4, block_size: 016}]\n", "2:34", {"'016'", "an integer"}},
    {"FractionForAnInteger",
     "name: x\nsweeps: [{batch: q4, gap_tokens: 1.5}]\n",
     "2:34",
     {"'1.5'", "an integer"}},
    {"ValueIsMissing", "name: x\nsweeps:\n  - batch: q4\n    dtype:\n", "4:5", {"key 'dtype'", "nothing"}},
    {"HeadsDoNotDivide", "name: x\nsweeps: [{batch: q4, heads: 7/2}]\n", "2:29", {"'7/2'", "multiple"}},
    {"HeadsAreWords", "name: x\nsweeps: [{batch: q4, heads: many}]\n", "2:29", {"'many'", "32/8"}},
    {"TruthValueInWords",
     "name: x\nsweeps: [{batch: q4, allow_short_kv: yes}]\n",
     "2:38",
     {"'yes'", "true or false"}},
    {"WindowAsAList",
     "name: x\nsweeps: [{batch: q4, window: [255, 0]}]\n",
     "2:31",
     {"key 'window'", "\"4095,0\""}},
    {"NegativeSoftcap", "name: x\nsweeps: [{batch: q4, softcap: -1}]\n", "2:31", {"key 'softcap'", "from 0"}},
    {"ScaleOfZero",
     "name: x\nsweeps: [{batch: q4, softmax_scale: 0}]\n",
     "2:37",
     {"key 'softmax_scale'", "over 0"}},
    {"NameIsANumber", "name: 12\nsweeps: [{batch: q4}]\n", "1:7", {"key 'name'", "quotes"}},
    {"SeedIsNegative", "name: x\nseed: -1\nsweeps: [{batch: q4}]\n", "2:7", {"key 'seed'", "from 0"}},
    // Batches.
    {"BatchWithoutALength", "name: x\nsweeps: [{batch: 4q}]\n", "2:20", {"batch spec '4q'", "query length"}},
    {"BatchWithAWrongLetter", "name: x\nsweeps:\n  - batch: 8q1s1k_4x2\n", "3:20", {"'x'", "[COUNT]qLEN"}},
    {"BatchWithACapitalUnit", "name: x\nsweeps:\n  - batch: q4K\n", "3:14", {"did you mean 'k'"}},
    {"BatchWithAComma", "name: x\nsweeps:\n  - batch: \"q4,q5\"\n", "3:15", {"did you mean '_'"}},
    {"BatchTooLong", "name: x\nsweeps: [{batch: 3q1024m}]\n", "2:18", {"at most"}},
    {"FewerKeysThanQueries",
     "name: x\nsweeps:\n  - mask: causal\n    batch: [q4, 2q9s3]\n",
     "4:17",
     {"9 query tokens but 3 KV tokens", "allow_short_kv"}},
    {"UnknownDistribution",
     "name: x\nsweeps:\n  - batch: {lengths: {lognorm: {median: 5, sigma: 1}}, count: 4}\n",
     "3:23",
     {"'lognorm'", "did you mean 'lognormal'"}},
    {"DistributionWithoutACount",
     "name: x\nsweeps:\n  - batch: {lengths: {uniform: [1, 9]}}\n",
     "3:12",
     {"'count' is missing"}},
    {"ClipUpsideDown",
     "name: x\nsweeps:\n  - batch: {lengths: {uniform: [9, 1]}, count: 4}\n",
     "3:32",
     {"wrong way round"}},
    {"CountsDisagree",
     "name: x\nsweeps:\n  - batch: {lengths: [1, 2, 3], count: 4}\n",
     "3:22",
     {"lists 3", "4"}},
    {"LengthsAndQueries",
     "name: x\nsweeps:\n  - batch: {lengths: 4, q: 1, count: 2}\n",
     "3:12",
     {"'lengths'", "'context'"}},
    // Axes.
    {"ZipOfUnequalLists",
     "name: x\nsweeps:\n  - batch: q4\n    zip: {heads: [2, 4], head_dim: [8, 16, 32]}\n",
     "4:36",
     {"'head_dim'", "3 values", "'heads'", "2"}},
    {"ZipOfOneValue", "name: x\nsweeps:\n  - batch: q4\n    zip: {heads: 2}\n", "4:18", {"expected a list"}},
    {"ZipAndOutside",
     "name: x\nsweeps:\n  - batch: q4\n    zip: {heads: [2, 4]}\n    heads: 8\n",
     "5:5",
     {"'heads'", "zip"}},
    {"UnknownKeyInZip",
     "name: x\nsweeps:\n  - batch: q4\n    zip: {heds: [2, 4]}\n",
     "4:11",
     {"did you mean 'heads'"}},
    {"CoverUnknown",
     "name: x\nsweeps:\n  - batch: q4\n    cover: pairwize\n",
     "4:12",
     {"did you mean 'pairwise'?", "allowed: product, pairwise, 3, {sample: COUNT}"}},
    {"CoverOfFour", "name: x\nsweeps:\n  - batch: q4\n    cover: 4\n", "4:12", {"got '4'", "3"}},
    {"CoverSampleUncounted",
     "name: x\nsweeps:\n  - batch: q4\n    cover: sample\n",
     "4:12",
     {"needs a count: write {sample: COUNT}"}},
    {"CoverSampleMisspelt",
     "name: x\nsweeps:\n  - batch: q4\n    cover: {sampel: 20}\n",
     "4:13",
     {"did you mean 'sample'?"}},
    {"CoverSampleOfNothing",
     "name: x\nsweeps:\n  - batch: q4\n    cover: {sample: 0}\n",
     "4:21",
     {"got '0'", "from 1 to 1000000"}},
    {"CoverOfNothing",
     "name: x\nsweeps:\n  - batch: q4\n    cover: {}\n",
     "4:12",
     {"the mapping is empty, expected {sample: COUNT}"}},
    {"CoverTwice",
     "name: x\nsweeps:\n  - batch: q4\n    cover: [3]\n",
     "4:12",
     {"product", "{sample: COUNT}"}},
    {"ExcludeIsAMapping",
     "name: x\nsweeps:\n  - batch: q4\n    exclude: {heads: 2}\n",
     "4:14",
     {"list of mappings"}},
    {"ExcludeOfNothing",
     "name: x\nsweeps:\n  - batch: q4\n    exclude: [{}]\n",
     "4:15",
     {"exclude every case"}},
    {"UnknownKeyInExclude",
     "name: x\nsweeps:\n  - batch: q4\n    exclude: [{headdim: 2}]\n",
     "4:16",
     {"did you mean 'head_dim'"}},
    // Keys that contradict each other.
    {"AppendToPackedKeys",
     "name: x\nsweeps:\n  - {op: kv_append, kv: packed, batch: q4}\n",
     "3:25",
     {"kv_append", "kv: paged"}},
    {"AppendOfMoreThanAll",
     "name: x\nsweeps:\n  - {op: kv_append, batch: q4s2}\n",
     "3:28",
     {"appends 4 tokens", "2"}},
    {"PastTheAddressSpace",
     "name: x\nsweeps:\n  - {batch: 1000q1s1m, dtype: fp32, heads: 1024, head_dim: 256, mask: none}\n",
     "3:13",
     {"GB of memory, more than any machine can address"}},
};

class CliBadConfig : public ::testing::TestWithParam<BadConfig> {};

TEST_P(CliBadConfig, NamesThePlaceAndTheMend) {
  const BadConfig& bad = GetParam();
  const Scratch scratch;
  scratch.write("bad.yaml", bad.text);
  const Outcome o = run_attnbench(scratch, {"run", "bad.yaml", "--device", "cpu", "--out", "out"});
  EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
  EXPECT_THAT(o.err, StartsWith(std::string("bad.yaml:") + bad.place + ": error: "));
  for (const char* text : bad.says) EXPECT_THAT(o.err, HasSubstr(text));
  EXPECT_FALSE(std::filesystem::exists(scratch.dir() / "out")) << "nothing may run or be written";
}

INSTANTIATE_TEST_SUITE_P(, CliBadConfig, ::testing::ValuesIn(kBadConfigs),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(CliBadConfigElsewhere, ListAndProfileReadAsStrictly) {
  const Scratch scratch;
  scratch.write("bad.yaml", kBadConfigs[2].text);
  for (const char* command : {"list", "profile"}) {
    const Outcome o = run_attnbench(scratch, {command, "bad.yaml"});
    EXPECT_EQ(o.exit_code, 2) << command;
    EXPECT_THAT(o.err, StartsWith("bad.yaml:5:5: error: ")) << command;
  }
}

TEST(CliBadConfigElsewhere, OneBadFileStopsTheGoodOnes) {
  const Scratch scratch;
  scratch.write("good.yaml", "name: good\nsweeps: [{batch: q4}]\n");
  scratch.write("bad.yaml", kBadConfigs[2].text);
  const Outcome o =
      run_attnbench(scratch, {"run", "good.yaml", "bad.yaml", "--device", "cpu", "--out", "out"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(scratch.dir() / "out"));
}

}  // namespace
}  // namespace attnbench::testing
