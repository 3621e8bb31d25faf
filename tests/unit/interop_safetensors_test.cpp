// Files of tensors come from anywhere: every number in them is checked, and errors name file and tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/interop/safetensors.h"
#include "harness/results/files.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Safetensors : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  /// A file with this header and `data` bytes behind it.
  std::string file(const std::string& header, std::size_t data) const {
    return raw(header.size(), header + std::string(data, '\1'));
  }
  std::string raw(uint64_t length, const std::string& rest) const {
    std::ofstream out(path("x.safetensors"), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << rest;
    return path("x.safetensors");
  }
  static std::string error_of(const std::string& path) {
    try {
      SafetensorsFile file(path);
    } catch (const TensorFileError& e) {
      return e.message();
    }
    return "no error";
  }

  const test::TempFolder dir_;
};

TEST_F(Safetensors, GivesBackWhatWasWritten) {
  const std::vector<double> wide = {1.5, -2.0};
  const std::vector<int32_t> whole = {7, -1, 2147483647};
  const std::vector<unsigned char> bytes = {1, 2, 3, 4, 5, 6};
  const TensorView tensors[] = {
      {"wide", Element::kF64, {2, 1}, wide.data()},   {"whole", Element::kI32, {3}, whole.data()},
      {"e4m3", Element::kE4m3, {2, 3}, bytes.data()}, {"e5m2", Element::kE5m2, {3, 2}, bytes.data()},
      {"nothing", Element::kBf16, {0, 4}, nullptr},   {"scalar", Element::kI8, {}, bytes.data()}};
  write_safetensors(path("x.safetensors"), {{"a", "b \"c\"\n"}}, tensors);
  SafetensorsFile file(path("x.safetensors"));
  EXPECT_EQ(file.metadata().at("a"), "b \"c\"\n");
  ASSERT_EQ(file.entries().size(), 6u);
  EXPECT_EQ(file.entry("wide").shape, (std::vector<int64_t>{2, 1}));
  const auto back = file.read("wide");
  ASSERT_EQ(back.size(), 16u);
  EXPECT_EQ(std::memcmp(back.data(), static_cast<const void*>(wide.data()), 16), 0);
  EXPECT_EQ(file.read_integers("whole"), (std::vector<int64_t>{7, -1, 2147483647}));
  EXPECT_EQ(file.read("e4m3"), bytes);
  EXPECT_EQ(file.read("e5m2"), bytes);
  EXPECT_TRUE(file.read("nothing").empty());
  EXPECT_EQ(file.read("scalar"), std::vector<unsigned char>{1});
  // Readers that map a file want the data aligned.
  std::ifstream in(path("x.safetensors"), std::ios::binary);
  uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), sizeof length);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1)
      << "a temporary file is left";
}

TEST_F(Safetensors, NamesWhatItLacks) {
  SafetensorsFile file(this->file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  const auto message = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const TensorFileError& e) {
      return e.message();
    }
    return "no error";
  };
  EXPECT_THAT(message([&] { file.read("b"); }),
              AllOf(HasSubstr("x.safetensors: error"), HasSubstr("no tensor 'b', only a")));
  EXPECT_THAT(message([&] { file.read_integers("a"); }),
              HasSubstr("tensor 'a' is F32; I32 or I64 is required"));
}

TEST_F(Safetensors, CannotBeWrittenToAFolderThatIsMissing) {
  EXPECT_THROW(write_safetensors(path("no/x.safetensors"), {}, {}), FileError);
}

struct BadHeader {
  const char* header;
  std::size_t data;
  const char* error;
};

TEST_F(Safetensors, RefusesHeadersThatContradictThemselves) {
  const BadHeader bad[] = {
      {"", 0, "its header is no valid JSON"},
      {"[]", 0, "it is no object"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 4, "its header is no valid JSON"},
      {"{\"\xff\":{}}", 0, "its header is no valid JSON"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "it has the key 'a' twice"},
      {R"({"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4,
       "it has the key 'dtype' twice"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__: "},
      {R"({"a":7})", 0, "tensor 'a': "},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor 'a': "},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4,
       "tensor 'a': {\"dtype\": NAME"},
      {R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", 8,
       "tensor 'a': dtype 'C64' is unknown; attnbench reads BF16"},
      {R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,8]}})", 8, "tensor 'a': "},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
       "tensor 'a': a whole number from 0 on"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4,
       "tensor 'a': a whole number from 0 on"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "tensor 'a': F32 of shape (2) takes 8 bytes, and data_offsets [0, 4] hold 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
       "tensor 'a': F32 of shape (1) takes 4 bytes, and data_offsets [4, 0] hold none"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
       "tensor 'a': shape (4294967296, 4294967296) is too large"},
      {R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
       "tensor 'a': shape (4611686018427387904) is too large"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[0,4]}})", 4,
       "tensor 'a': F32 of shape"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "tensors 'a' and 'b' overlap at byte 2"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "tensors 'a' and 'b' overlap at byte 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
       "bytes 0 to 4 of the data, before tensor 'a', belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 6,
       "the last 2 of 6 bytes of the data belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
       "tensor 'a' ends at byte 8 of the data, and the file has 7: it is cut short"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]}})", 4,
       "tensor 'a': "},
  };
  for (const BadHeader& b : bad) {
    EXPECT_THAT(error_of(file(b.header, b.data)),
                AllOf(HasSubstr("x.safetensors: error: "), HasSubstr(b.error)))
        << b.header;
  }
}

TEST_F(Safetensors, RefusesLengthsThatTheFileDoesNotHave) {
  EXPECT_THAT(error_of(raw(SafetensorsFile::kMaxHeaderBytes + 1, "{}")),
              HasSubstr("this is no safetensors file"));
  EXPECT_THAT(error_of(raw(UINT64_MAX, "{}")), HasSubstr("this is no safetensors file"));
  EXPECT_THAT(error_of(raw(3, "{}")), HasSubstr("it is cut short: its header has 3 bytes, and 2 follow"));
  std::ofstream(path("short")) << "1234567";
  EXPECT_THAT(error_of(path("short")), HasSubstr("it has 7 bytes"));
  EXPECT_THAT(error_of(path("none")), HasSubstr("cannot read the file: No such file"));
  EXPECT_THAT(error_of(dir_.string()), HasSubstr("this is a folder"));
}

TEST_F(Safetensors, DamagedFilesAreReadOrRefused) {
  const std::vector<int32_t> whole = {7, -1, 3};
  const TensorView tensors[] = {{"whole", Element::kI32, {3}, whole.data()},
                                {"more", Element::kI32, {1, 2}, whole.data()}};
  write_safetensors(path("whole"), {{"a", "b"}}, tensors);
  std::ostringstream text;
  text << std::ifstream(path("whole"), std::ios::binary).rdbuf();
  const std::string good = text.str();
  int read = 0, refused = 0;
  const auto look = [&](const std::string& bytes) {
    std::ofstream(path("x.safetensors"), std::ios::binary) << bytes;
    try {
      SafetensorsFile file(path("x.safetensors"));
      for (const auto& [name, e] : file.entries()) {
        EXPECT_EQ(file.read(name).size(),
                  static_cast<std::size_t>(element_count(e.shape) * element_size(e.type)));
      }
      ++read;
    } catch (const TensorFileError& e) {
      EXPECT_THAT(e.message(), HasSubstr("x.safetensors: error: "));
      ++refused;
    }
  };
  for (std::size_t n = 0; n < good.size(); ++n) look(good.substr(0, n));
  EXPECT_EQ(read, 0);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      look(bad);
    }
  }
  EXPECT_GT(read, 100);  // the data and names may be anything
  EXPECT_GT(refused, 500);
}

TEST_F(Safetensors, DeepNestingIsAnError) {
  const std::string deep = R"({"a":)" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}";
  EXPECT_THAT(error_of(file(deep, 0)), HasSubstr("tensor 'a': "));
}

}  // namespace
}  // namespace attnbench
