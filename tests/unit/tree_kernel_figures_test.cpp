// The figures in the READMEs of the kernels, and of the counters, are those of the committed results.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/tree_tables.h"

namespace attnbench {
namespace {

using nlohmann::json;

/// A row's first cell, and what stands for {} in the ids of its columns.
struct Row {
  std::string label;
  std::string batch;
};

/// The case of a column and what is shown of it; an id of "{}" is the row's whole.
struct Column {
  std::string quantity;  // us, tflops, gbs, sol or a field of the counters
  std::string id;
};

struct Table {
  std::string readme;
  std::string header;  // how the table's first line begins
  std::string file;    // under results/baselines
  std::string kernel;  // "": the row's second cell names it
  std::vector<Column> columns;
  std::vector<Row> rows;
};

/// Three figures of each of the cases: microseconds, GB/s, %SOL.
std::vector<Column> three_of_each(const std::vector<std::string>& ids) {
  std::vector<Column> columns;
  for (const std::string& id : ids) {
    for (const char* quantity : {"us", "gbs", "sol"}) columns.push_back({quantity, id});
  }
  return columns;
}

/// Each row for two kernels, one below the other.
std::vector<Row> for_both(const std::vector<Row>& rows) {
  std::vector<Row> both;
  for (const Row& row : rows) both.insert(both.end(), 2, row);
  return both;
}

std::vector<Table> all_tables() {
  const std::string prefill = "/bf16/h16-16/d128/causal/{}", decode = "/bf16/h32-8/d128/causal/{}";
  const std::string e4m3 = "/bf16-kv_e4m3/h32-8/d128/causal/{}";
  const std::string p16 = "attention/paged16-nhd-shuffled", p64 = "attention/paged64-nhd-shuffled",
                    p256 = "attention/paged256-nhd-shuffled";
  const std::string rotated = "/bf16/h32-8/d128/causal/append/neox/{}";
  const std::string append = "kv_append/paged16-nhd-shuffled/bf16";
  const std::vector<Column> rates = {{"tflops", "attention/packed/bf16/h16-16/d128/causal/{}"},
                                     {"tflops", "attention/packed/bf16/h16-16/d128/full/{}"},
                                     {"tflops", "attention/packed/bf16/h32-32/d64/causal/{}"},
                                     {"tflops", "attention/packed/bf16/h32-32/d64/full/{}"},
                                     {"tflops", "attention/packed/bf16/h8-8/d256/causal/{}"},
                                     {"tflops", "attention/packed/bf16/h8-8/d256/full/{}"},
                                     {"tflops", p64 + prefill},
                                     {"tflops", p16 + prefill},
                                     {"tflops", p256 + prefill}};
  const std::vector<Row> lengths = {{"32 x 512", "32q512"}, {"16 x 1024", "16q1k"}, {"8 x 2048", "8q2k"},
                                    {"4 x 4096", "4q4k"},   {"2 x 8192", "2q8k"},   {"1 x 16384", "q16k"}};
  const std::vector<Row> contexts = {{"1 x 1k", "q1s1k"},
                                     {"1 x 8k", "q1s8k"},
                                     {"1 x 32k", "q1s32k"},
                                     {"8 x 4k", "8q1s4k"},
                                     {"32 x 1k", "32q1s1k"},
                                     {"32 x 8k", "32q1s8k"},
                                     {"128 x 8k", "128q1s8k"},
                                     {"32 x 8k, 4 query tokens", "32q4s8k"},
                                     {"32 x 8k, 8 query tokens", "32q8s8k"}};
  const Row mixed = {"mixed: 2,048 over 8,192, 63 decodes at 4,096", "q2ks8k_63q1s4k"};
  std::vector<Row> steps(contexts.begin(), contexts.end() - 2);
  std::vector<Row> cold_steps = steps;
  cold_steps.push_back(mixed);
  steps.insert(steps.end(), {contexts[7],
                             {"1 x 1k, appending", "append/q1s1k"},
                             {"1 x 8k, appending", "append/q1s8k"},
                             {"8 x 4k, appending", "append/8q1s4k"},
                             {"32 x 1k, appending", "append/32q1s1k"},
                             {"32 x 8k, appending", "append/32q1s8k"},
                             mixed});
  return {
      {"kernels/cuda/sm90_prefill/README.md", "| lengths | D 128 causal | full |", "h100/prefill.json",
       "sm90_prefill", rates, lengths},
      {"kernels/cuda/sm90_decode/README.md",
       "| batch x context | page 16 |",
       "h100/decode.json",
       "sm90_decode",
       {{"us", p16 + decode},
        {"us", p64 + decode},
        {"us", p256 + decode},
        {"us", p16 + e4m3},
        {"us", p64 + e4m3}},
       contexts},
      {"kernels/cuda/sm90_decode/README.md",
       "| batch x context, appending |",
       "h100/decode.json",
       "sm90_decode",
       {{"us", p16 + rotated}, {"us", p64 + rotated}},
       {contexts[0], contexts[1], contexts[3], contexts[4], contexts[5], contexts[6]}},
      {"kernels/cuda/sm90_mixed/README.md",
       "| step | page 16 |",
       "h100/mixed.json",
       "sm90_mixed",
       {{"us", p16 + decode}, {"us", p64 + decode}, {"us", p256 + decode}},
       {{"2,048 tokens over 8,192 keys, 63 decodes at 4,096", "q2ks8k_63q1s4k"},
        {"the chunk alone", "q2ks8k"},
        {"the decodes alone", "63q1s4k"},
        {"2,048 tokens over 10,240 keys, 63 decodes at 4,096", "q2ks10k_63q1s4k"},
        {"the chunk alone", "q2ks10k"},
        {"512 over 2,048, 15 decodes at 1,024", "q512s2k_15q1s1k"},
        {"512 over 2,048, 255 at 1,024", "q512s2k_255q1s1k"},
        {"2 x 1,024 over 4,096, 126 at 2,048", "2q1ks4k_126q1s2k"},
        {"512, 7 decodes at 512", "q512_7q1s512"},
        {"128 over 1,024, 31 at 1,024", "q128s1k_31q1s1k"},
        {"512 over 2,048, 63 at 1,024", "q512s2k_63q1s1k"},
        {"512 over 2,048, 7 at 4,096", "q512s2k_7q1s4k"},
        {"512 over 8,192, 63 at 4,096", "q512s8k_63q1s4k"},
        {"1,024 over 4,096, 15 at 2,048", "q1ks4k_15q1s2k"},
        {"1,024 over 4,096, 63 at 2,048", "q1ks4k_63q1s2k"},
        {"1,024, 500 over 3,072 and 300 over 1,024; 20 at 512, 20 at 2,048, 20 at 6,144",
         "q1k_q500s3k_q300s1k_20q1s512_20q1s2k_20q1s6k"}}},
      {"kernels/cuda/append/README.md",
       "| tokens | copy, us |",
       "h100/decode.json",
       "cuda_append",
       three_of_each({append + "/h8/d128/{}", append + "/h8/d128/neox/{}"}),
       {{"128", "128q1s1k"}, {"8,192", "4q2k"}, {"65,536", "32q2k"}}},
      {"kernels/cuda/append/README.md",
       "| tokens | to e4m3, scales given, us |",
       "h100/decode.json",
       "cuda_append",
       three_of_each({append + "-kv_e4m3/h8/d128/{}", append + "-kv_e4m3-per_token/h8/d128/neox/{}",
                      append + "-kv_int8/h8/d128/neox/{}"}),
       {{"8,192", "4q2k"}, {"65,536", "32q2k"}}},
      {"kernels/cuda/merge/README.md",
       "| states | us |",
       "h100/decode.json",
       "cuda_merge",
       three_of_each({"merge_states/bf16/h32/d128/{}/4q2k"}),
       {{"2, fp32", "2xfp32"}, {"8, fp32", "8xfp32"}, {"2, bf16", "2xbf16"}, {"8, bf16", "8xbf16"}}},
      {"kernels/cuda/README.md", "| lengths | kernel | D 128 causal |", "h100-checks/peers.json", "", rates,
       for_both(lengths)},
      {"kernels/cuda/README.md",
       "| batch x context | kernel | page 16 |",
       "h100-checks/peers.json",
       "",
       {{"us", p16 + decode}, {"us", p64 + decode}, {"us", p256 + decode}},
       for_both(steps)},
      {"kernels/cuda/README.md",
       "| lengths, cold code | kernel |",
       "h100-checks/peers_cold_code.json",
       "",
       {rates[0], rates[1]},
       for_both(lengths)},
      {"kernels/cuda/README.md",
       "| batch x context, cold code | kernel |",
       "h100-checks/peers_cold_code.json",
       "",
       {{"us", p64 + decode}},
       for_both(cold_steps)},
      {"harness/README.md",
       "| case | kernel | model |",
       "h100-checks/counters.json",
       "",
       {{"bytes", "{}"},
        {"dram_read_bytes", "{}"},
        {"dram_write_bytes", "{}"},
        {"dram_over_model", "{}"},
        {"tensor_active_percent", "{}"},
        {"l2_hit_percent", "{}"}},
       {{"decode, 32 of 8k", p64 + "/bf16/h32-8/d128/causal/32q1s8k"},
        {"the same, KV in e4m3", p64 + "/bf16-kv_e4m3/h32-8/d128/causal/32q1s8k"},
        {"causal prefill, 4 of 4k", "attention/packed/bf16/h16-16/d128/causal/4q4k"},
        {"full prefill, 1 of 16k", "attention/packed/bf16/h16-16/d128/full/q16k"},
        {"append, 32 of 2k", append + "/h8/d128/32q2k"}}},
  };
}

/// The attnbench object of a case and kernel; null where there is none.
json entry(const json& results, const std::string& id, const std::string& kernel) {
  for (const json& b : results["benchmarks"]) {
    if (b["attnbench"]["id"] == id && b["attnbench"]["kernel"] == kernel) return b["attnbench"];
  }
  return nullptr;
}

double value_of(const json& a, const std::string& quantity) {
  if (quantity == "us") return a["time"]["median_us"];
  if (quantity == "sol") return 100 * a["sol"].get<double>();
  if (quantity == "tflops" || quantity == "gbs") return a[quantity];
  const double value = quantity == "bytes" ? a["bytes"] : a["counters"][quantity];
  return quantity.find("bytes") == std::string::npos ? value : value / 1e6;
}

/// What the table of a text says wrongly, a line each; empty where all of it is true and nothing is missing.
std::string wrong_in(const std::string& text, const Table& table, const json& results) {
  const auto rows = tree::table(text, table.header);
  std::string wrong;
  if (rows.size() != table.rows.size()) return std::to_string(rows.size()) + " rows\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::size_t first = table.kernel.empty() ? 2 : 1;
    if (rows[r][0] != table.rows[r].label || rows[r].size() < first + table.columns.size())
      return wrong + "row " + rows[r][0] + "\n";
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      std::string id = table.columns[c].id;
      id.replace(id.find("{}"), 2, table.rows[r].batch);
      const std::string& cell = rows[r][first + c];
      const json a = entry(results, id, table.kernel.empty() ? rows[r][1] : table.kernel);
      // A case that did not pass has no figure.
      const bool right =
          a.is_null() ? cell.empty()
          : a["status"] != "pass"
              ? cell == "-"
              : !cell.empty() && cell != "-" && !tree::differs(cell, value_of(a, table.columns[c].quantity));
      if (!right) wrong += rows[r][0] + ": '" + cell + "' for " + id + " " + table.columns[c].quantity + "\n";
    }
  }
  return wrong;
}

json committed(const std::string& file) {
  return json::parse(tree::read(tree::root() / "results/baselines" / file));
}

TEST(TreeKernelFigures, TablesAreTheCommittedResults) {
  for (const Table& table : all_tables())
    EXPECT_EQ(wrong_in(tree::read(tree::root() / table.readme), table, committed(table.file)), "")
        << table.readme << ", " << table.file;
}

TEST(TreeKernelFigures, AWrongFigureIsSeen) {
  const Table table = all_tables().at(0);
  const std::string text = tree::read(tree::root() / table.readme);
  json results = committed(table.file);
  ASSERT_EQ(wrong_in(text, table, results), "");
  json& causal_512 = results["benchmarks"][0]["attnbench"];
  ASSERT_EQ(causal_512["id"], "attention/packed/bf16/h16-16/d128/causal/32q512");
  causal_512["tflops"] = causal_512["tflops"].get<double>() * 0.98;
  EXPECT_NE(wrong_in(text, table, results), "");
  results["benchmarks"].erase(0);
  EXPECT_NE(wrong_in(text, table, results), "") << "a figure without a result";
}

}  // namespace
}  // namespace attnbench
