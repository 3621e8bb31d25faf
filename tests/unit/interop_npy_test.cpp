#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness/interop/npy.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Npy : public ::testing::Test {
 protected:
  /// A file of this version with this header, and `data` behind it.
  std::string file(int version, const std::string& header, const std::string& data) const {
    std::string text = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
    for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
      text += static_cast<char>(header.size() >> (8 * i) & 0xff);
    return raw(text + header + data);
  }
  std::string raw(const std::string& text) const {
    std::string path = (dir_ / "x.npy").string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  template <class T>
  static std::string bytes(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  static std::string error_of(const std::string& path) {
    try {
      read_npy(path);
    } catch (const TensorFileError& e) {
      return e.message();
    }
    return "no error";
  }

  const test::TempFolder dir_;
};

TEST_F(Npy, ReadsVersionsOneToThree) {
  const std::string data = bytes<float>({1, 2, 3, 4, 5, 6});
  for (const int version : {1, 2, 3}) {
    const HostTensor t =
        read_npy(file(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }     \n", data));
    EXPECT_EQ(t.type, Element::kF32);
    EXPECT_EQ(t.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(std::string(t.bytes.begin(), t.bytes.end()), data);
  }
}

TEST_F(Npy, TurnsFortranOrderIntoCOrder) {
  // The array [[[0, 1, 2], [3, 4, 5]]]: Fortran order varies the first index fastest.
  const std::string data = bytes<double>({0, 3, 1, 4, 2, 5});
  const HostTensor t = read_npy(file(1, "{'descr': '<f8', 'fortran_order': True, 'shape': (1, 2, 3)}", data));
  EXPECT_EQ(std::string(t.bytes.begin(), t.bytes.end()), bytes<double>({0, 1, 2, 3, 4, 5}));
}

TEST_F(Npy, ReadsTheTypesOfOutputs) {
  const struct {
    const char* descr;
    Element type;
  } types[] = {
      {"<f2", Element::kF16}, {"<u2", Element::kU16}, {"|V2", Element::kU16}, {"<V2", Element::kU16}};
  for (const auto& t : types) {
    const std::string header =
        std::string("{\"descr\": \"") + t.descr + "\", 'shape': (2,), 'fortran_order': False}";
    EXPECT_EQ(read_npy(file(1, header, "abcd")).type, t.type) << t.descr;
  }
  EXPECT_TRUE(
      read_npy(file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "abcd")).shape.empty());
  EXPECT_TRUE(
      read_npy(file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 3)}", "")).bytes.empty());
}

TEST_F(Npy, RefusesWhatItCannotRead) {
  const auto header = [this](const std::string& text, const std::string& data = "") {
    return error_of(file(1, text, data));
  };
  const std::string rest = ", 'fortran_order': False, 'shape': (1,)}";
  EXPECT_THAT(header("{'descr': '>f4'" + rest),
              AllOf(HasSubstr("x.npy: error: "), HasSubstr("little-endian")));
  EXPECT_THAT(header("{'descr': '<i4'" + rest), HasSubstr("its elements are '<i4'; float16, float32"));
  EXPECT_THAT(header("{'descr': [('a', '<f4')]" + rest), HasSubstr("structures"));
  EXPECT_THAT(header("{'descr': '<f4'" + rest, "abc"),
              HasSubstr("<f4 of shape (1) takes 4 bytes, and the file has 3"));
  EXPECT_THAT(header("{'descr': '<f4'" + rest, "abcde"), HasSubstr("takes 4 bytes, and the file has 5"));
  EXPECT_THAT(header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
              HasSubstr("too many"));
  EXPECT_THAT(header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), HasSubstr("too many"));
  EXPECT_THAT(header("{'descr': '<f4', 'fortran_order': False}"), HasSubstr("lacks one of descr"));
  EXPECT_THAT(header("{'descr': '<f4', 'descr': '<f4'" + rest), HasSubstr("the key 'descr' twice"));
  EXPECT_THAT(header("{'other': '<f4'" + rest), HasSubstr("unknown key 'other'"));
  for (const char* text :
       {"", "{", "{'descr", "{'descr': '<f4'", "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x"}) {
    EXPECT_THAT(header(text, "abcd"), HasSubstr("its header cannot be read")) << text;
  }
  EXPECT_THAT(error_of(file(4, "{}", "")), HasSubstr("version 4.0"));
  EXPECT_THAT(error_of(raw("PK\3\4 a zip file, as .npz is")), HasSubstr("does not begin with"));
  EXPECT_THAT(error_of(raw(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12))),
              HasSubstr("longer than 1 MiB"));
  EXPECT_THAT(error_of(raw(std::string("\x93NUMPY\x01\0\x10\0{'de", 14))),
              HasSubstr("its header of 16 bytes is cut short"));
  EXPECT_THAT(error_of((dir_ / "none.npy").string()), HasSubstr("cannot read the file"));
  EXPECT_THAT(error_of(dir_.string()), HasSubstr("this is a folder"));
}

}  // namespace
}  // namespace attnbench
