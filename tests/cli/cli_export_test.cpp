// `export` and `check`: a case goes to a kernel that runs elsewhere, and its outputs come back. NumPy is that
// kernel where it is installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kCase =
    "{kv: paged, batch: 2q3s20_2q1s9, heads: 4/2, head_dim: 32, block_size: 8, mask: causal}";

/// A tensor of F64 in a safetensors file, and its shape.
std::vector<double> read_f64(const std::string& path, const std::string& name, std::vector<int64_t>& shape) {
  std::ifstream in(path, std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, '\0');
  in.read(header.data(), static_cast<std::streamsize>(length));
  const json entry = json::parse(header).at(name);
  EXPECT_EQ(entry["dtype"], "F64");
  shape = entry["shape"].get<std::vector<int64_t>>();
  std::vector<double> out(
      (entry["data_offsets"][1].get<std::size_t>() - entry["data_offsets"][0].get<std::size_t>()) / 8);
  in.seekg(static_cast<std::streamoff>(8 + length + entry["data_offsets"][0].get<uint64_t>()));
  in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size() * 8));
  return out;
}

std::string write_npy(const Scratch& scratch, const std::string& name, const std::vector<double>& values,
                      const std::vector<int64_t>& shape) {
  std::string dims;
  for (const int64_t n : shape) dims += std::to_string(n) + ", ";
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + dims + "), }\n";
  std::string text = std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(header.size()) + '\0' + header;
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  return scratch.write(name, text);
}

class CliExport : public ::testing::Test {
 protected:
  Outcome run_export(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"export", kCase, "-o", "case.safetensors"};
    args.insert(args.end(), more.begin(), more.end());
    return run_attnbench(scratch, args);
  }
  const Scratch scratch;
};

TEST_F(CliExport, OutputsComeBackAndAreJudged) {
  const Outcome exported = run_export({});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(
      exported.out,
      AllOf(HasSubstr(
                "wrote case.safetensors: attention/paged8-nhd-shuffled/bf16/h4-2/d32/causal/2q3s20_2q1s9"),
            HasSubstr("32 of 32 rows"), HasSubstr("attnbench check case.safetensors")));
  std::vector<int64_t> shape, lse_shape;
  std::vector<double> out = read_f64(scratch.path("case.safetensors"), "expected_out", shape);
  const std::vector<double> lse = read_f64(scratch.path("case.safetensors"), "expected_lse", lse_shape);
  write_npy(scratch, "out.npy", out, shape);
  write_npy(scratch, "lse.npy", lse, lse_shape);
  const Outcome right = run_attnbench(scratch, {"check", "case.safetensors", "out.npy", "--lse", "lse.npy"});
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_THAT(right.out, AllOf(HasSubstr("1 passed"), HasSubstr("judged as a kernel with acc fp32, p bf16")));
  const Outcome alone =
      run_attnbench(scratch, {"check", "case.safetensors", "out.npy", "--numerics", "p=fp16"});
  EXPECT_EQ(alone.exit_code, 0) << alone.out << alone.err;
  EXPECT_THAT(alone.out, AllOf(HasSubstr("only O is judged"), HasSubstr("p fp16")));

  for (std::size_t i = 0; i < 32; ++i)
    std::swap(out[i], out[2 * 32 + i]);  // heads 0 and 2 of the first token
  write_npy(scratch, "wrong.npy", out, shape);
  const Outcome wrong =
      run_attnbench(scratch, {"check", "case.safetensors", "wrong.npy", "--lse", "lse.npy"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out,
              AllOf(HasSubstr("O of seq 0 pos 0 head"), HasSubstr("[max_z"), HasSubstr("rows change places"),
                    HasSubstr("reproduce: attnbench check case.safetensors wrong.npy --lse lse.npy")));
}

TEST_F(CliExport, MistakesAreExplained) {
  const auto error = [&](const std::vector<std::string>& args) {
    const Outcome o = run_attnbench(scratch, args);
    EXPECT_EQ(o.exit_code, 2) << o.out;
    return o.err;
  };
  EXPECT_THAT(error({"export", kCase, "-o", "case.npz"}), HasSubstr("must end in .safetensors"));
  EXPECT_THAT(error({"export", kCase, kCase + std::string(" "), "-o", "no/such/case.safetensors"}),
              HasSubstr("no/such"));
  EXPECT_THAT(error({"export", "{batch: [q1, q2]}", "-o", "x.safetensors"}),
              HasSubstr("2 cases are given, and a file holds one"));
  EXPECT_THAT(error({"export", "{op: kv_append, batch: q1s2}", "-o", "x.safetensors"}),
              HasSubstr("its op is kv_append; attention or attention_backward is required"));
  EXPECT_THAT(error({"export", kCase, "-o", "x.safetensors", "--numerics", "p=fp8"}),
              HasSubstr("'fp8' is not a type of p"));
  ASSERT_EQ(run_export({}).exit_code, 0);
  EXPECT_THAT(error({"check", "case.safetensors", "none.npy"}),
              HasSubstr("none.npy: error: cannot read the file"));
  EXPECT_THAT(error({"check", "none.safetensors", "none.npy"}),
              HasSubstr("none.safetensors: error: cannot read the file"));
  scratch.write("cut.safetensors", read_text(scratch.path("case.safetensors")).substr(0, 5000));
  EXPECT_THAT(error({"check", "cut.safetensors", "none.npy"}), HasSubstr("cut.safetensors: error: "));
  write_npy(scratch, "small.npy", {1, 2}, {2});
  EXPECT_THAT(error({"check", "case.safetensors", "small.npy"}),
              HasSubstr("'out' has shape (2); (8, 4, 32) is required"));
}

TEST_F(CliExport, NumPyComputesTheCaseFromItsFileAlone) {
  const std::string script = R"(
import json, struct, sys
import numpy as np
def load(path):
    b = open(path, 'rb').read()
    n = struct.unpack('<Q', b[:8])[0]
    h = json.loads(b[8:8 + n])
    types = {'BF16': '<u2', 'I32': '<i4', 'F32': '<f4', 'F64': '<f8'}
    m = h.pop('__metadata__')
    return m, {k: np.frombuffer(b, types[v['dtype']], int(np.prod(v['shape'])), 8 + n + v['data_offsets'][0]).reshape(v['shape']) for k, v in h.items()}
def floats(bits): return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
def bits(x):
    u = x.astype(np.float32).view(np.uint32)
    return ((u + 0x7fff + ((u >> 16) & 1)) >> 16).astype(np.uint16)
m, t = load('case.safetensors')
q, k, v, cu = floats(t['q']), floats(t['k']), floats(t['v']), t['cu_seqlens_q']
size, scale = int(m['block_size']), float(m['softmax_scale'])
out, lse = np.zeros(q.shape), np.zeros((q.shape[1], q.shape[0]), np.float32)
for b, n in enumerate(t['seqused_k']):
    place = [(t['block_table'][b, j // size], j % size) for j in range(n)]
    keys, values = np.array([k[p] for p in place]), np.array([v[p] for p in place])
    for i in range(cu[b], cu[b + 1]):
        seen = n - (cu[b + 1] - i) + 1
        for h in range(q.shape[1]):
            s = keys[:seen, h // 2] @ q[i, h] * scale
            p = np.exp(s - s.max())
            out[i, h], lse[h, i] = p @ values[:seen, h // 2] / p.sum(), s.max() + np.log(p.sum())
assert not np.isnan(out).any()
assert np.abs(out - t['expected_out']).max() < 1e-12
assert (np.abs(lse - t['expected_lse']) <= 6 * t['sigma_lse']).all()
np.save('bf16.npy', bits(out))
np.save('fortran.npy', np.asfortranarray(out.astype(np.float32)))
np.save('half.npy', out.astype(np.float16))
np.save('lse.npy', lse)
)";
  if (std::system("python3 -c 'import numpy' > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "no python3 with NumPy (Debian: python3-numpy)";
  ASSERT_EQ(run_export({}).exit_code, 0);
  const std::string file = scratch.write("kernel.py", script);
  ASSERT_EQ(std::system(("cd '" + scratch.dir().string() + "' && python3 kernel.py").c_str()), 0);
  for (const char* out : {"bf16.npy", "fortran.npy", "half.npy"}) {
    const Outcome o = run_attnbench(scratch, {"check", "case.safetensors", out, "--lse", "lse.npy"});
    EXPECT_EQ(o.exit_code, 0) << out << o.out << o.err;
  }
}

}  // namespace
}  // namespace attnbench::testing
