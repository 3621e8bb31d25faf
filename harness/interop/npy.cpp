#include "harness/interop/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>

#include "harness/config/near_file.h"
#include "harness/plain_file.h"
#include "harness/results/text.h"
#include "kernels/contract/dtype.h"

namespace attnbench {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kMostHeader = 1 << 20;  ///< bytes; NumPy itself reads 10,000
constexpr std::size_t kMostDims = 16;

[[noreturn]] void fail_npy(const std::string& path, const std::string& what) {
  throw TensorFileError(fmt::format("{}: error: {}", one_line(path), what));
}

/// Reads the header, a literal of Python: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;

  void read() {
    want('{');
    bool seen[3] = {};
    const auto once = [&](int key, const std::string& name) {
      if (seen[key]) fail_npy(path_, fmt::format("its header has the key '{}' twice", name));
      seen[key] = true;
    };
    while (!accept('}')) {
      const std::string key = string();
      want(':');
      if (key == "descr") {
        once(0, key);
        if (peek() == '[') fail_npy(path_, "its elements are structures; an array of numbers is required");
        descr = string();
      } else if (key == "fortran_order") {
        once(1, key);
        fortran = boolean();
      } else if (key == "shape") {
        once(2, key);
        shape = tuple();
      } else {
        fail_npy(path_, fmt::format("its header has an unknown key '{}'", one_line(key)));
      }
      if (!accept(',') && peek() != '}') bad();
    }
    if (!seen[0] || !seen[1] || !seen[2])
      fail_npy(path_, "its header lacks one of descr, fortran_order, shape");
    if (peek() != '\0') bad();
  }

 private:
  [[noreturn]] void bad() const {
    fail_npy(path_, fmt::format("its header cannot be read: {}", shorten_end(one_line(text_), 200)));
  }
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void want(char c) {
    if (!accept(c)) bad();
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') bad();
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) bad();
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    peek();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    bad();
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    want('(');
    while (!accept(')')) {
      peek();
      int64_t n = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
      if (error != std::errc() || out.size() == kMostDims) bad();
      at_ = static_cast<std::size_t>(end - text_.data());
      accept('L');  // as Python 2 wrote long numbers
      out.push_back(n);
      if (!accept(',') && peek() != ')') bad();
    }
    return out;
  }

  const std::string& path_;
  std::string_view text_;
  std::size_t at_ = 0;
};

Element element_of(const std::string& path, const std::string& descr) {
  const struct {
    const char* descr;
    Element type;
  } known[] = {{"<f2", Element::kF16}, {"<f4", Element::kF32}, {"<f8", Element::kF64}, {"<u2", Element::kU16},
               {"|u1", Element::kU8},  {"|V2", Element::kU16}, {"<V2", Element::kU16}};
  for (const auto& k : known) {
    if (descr == k.descr) return k.type;
  }
  fail_npy(
      path,
      fmt::format(
          "its elements are '{}'; float16, float32, float64 ('<f2', '<f4', '<f8') bits of bf16 as uint16 "
          "('<u2') or of 8-bit types as uint8 ('|u1') are required{}",
          one_line(descr), descr.starts_with('>') ? ", in little-endian order" : ""));
}

/// Fortran order, whose first index varies fastest, to C order.
std::vector<unsigned char> to_c_order(const std::vector<unsigned char>& from,
                                      const std::vector<int64_t>& shape, std::size_t size) {
  std::vector<unsigned char> to(from.size());
  std::vector<std::size_t> stride(shape.size());
  std::size_t step = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    stride[d] = step;
    step *= static_cast<std::size_t>(shape[d]);
  }
  std::vector<int64_t> index(shape.size(), 0);
  std::size_t source = 0;
  for (std::size_t at = 0; at < to.size(); at += size) {
    std::memcpy(&to[at], &from[source * size], size);
    for (std::size_t d = shape.size(); d-- > 0;) {
      source += stride[d];
      if (++index[d] < shape[d]) break;
      source -= stride[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return to;
}

}  // namespace

std::string npy_text(Element type, const std::vector<int64_t>& shape, const void* data) {
  const struct {
    Element type;
    DType narrow;
  } widened[] = {{Element::kBf16, DType::kBf16},
                 {Element::kF16, DType::kFp16},
                 {Element::kE4m3, DType::kE4m3},
                 {Element::kE5m2, DType::kE5m2}};
  const struct {
    Element type;
    const char* descr;
  } plain[] = {{Element::kF64, "<f8"}, {Element::kI8, "|i1"},  {Element::kU8, "|u1"},
               {Element::kU16, "<u2"}, {Element::kI32, "<i4"}, {Element::kI64, "<i8"}};
  const auto* found = std::ranges::find(plain, type, [](const auto& x) { return x.type; });
  std::string dims;
  for (const int64_t n : shape) dims += fmt::format("{}, ", n);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 found == std::end(plain) ? "<f4" : found->descr, dims);
  constexpr std::size_t kStart = 10, kAlign = 64;  // as NumPy writes it
  text.resize((kStart + text.size() + kAlign) / kAlign * kAlign - kStart - 1, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());
  text.insert(0, {static_cast<char>(length & 0xff), static_cast<char>(length >> 8)});
  text.insert(0, std::string(kMagic) + std::string("\1\0", 2));
  const auto count = static_cast<std::size_t>(element_count(shape));
  for (const auto& w : widened) {
    if (w.type != type) continue;
    const std::size_t begin = text.size();
    text.resize(begin + count * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) {
      const float x = load_float(w.narrow, data, static_cast<int64_t>(i));
      std::memcpy(&text[begin + i * sizeof x], &x, sizeof x);
    }
    return text;
  }
  return text.append(static_cast<const char*>(data), count * static_cast<std::size_t>(element_size(type)));
}

HostTensor read_npy(const std::string& path) {
  if (const std::string why = why_no_file(path, "a .npy file"); !why.empty()) fail_npy(path, why);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_npy(path, fmt::format("cannot read the file: {}{}", std::strerror(errno), near_file(path)));
  in.seekg(0, std::ios::end);
  const auto file_bytes = static_cast<uint64_t>(in.tellg());
  in.seekg(0);

  unsigned char start[12] = {};
  in.read(reinterpret_cast<char*>(start), 8);
  if (!in || std::memcmp(start, kMagic.data(), kMagic.size()) != 0) {
    fail_npy(path, "it does not begin with '\\x93NUMPY', as a .npy file does");
  }
  const int version = start[6];
  if (version < 1 || version > 3 || start[7] != 0) {
    fail_npy(path,
             fmt::format("it is of version {}.{}; attnbench reads 1.0, 2.0 and 3.0", version, start[7]));
  }
  const int length_bytes = version == 1 ? 2 : 4;
  in.read(reinterpret_cast<char*>(start + 8), length_bytes);
  uint64_t length = 0;
  for (int i = 0; i < length_bytes; ++i) length |= static_cast<uint64_t>(start[8 + i]) << (8 * i);
  const uint64_t data_at = 8 + static_cast<uint64_t>(length_bytes) + length;
  if (!in || length > kMostHeader || data_at > file_bytes) {
    fail_npy(path, fmt::format("its header of {} bytes is {}", length,
                               length > kMostHeader ? "longer than 1 MiB" : "cut short"));
  }
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  HeaderReader header(path, text);
  header.read();

  HostTensor out;
  out.type = element_of(path, header.descr);
  out.shape = header.shape;
  const int64_t size = element_size(out.type);
  const int64_t count = element_count(out.shape);
  const uint64_t data = file_bytes - data_at;
  if (count < 0 || count > (int64_t{1} << 62) / size || static_cast<uint64_t>(count * size) != data) {
    fail_npy(path,
             fmt::format("{} of shape {} takes {} bytes, and the file has {}", header.descr,
                         shape_text(out.shape), count < 0 ? "too many" : std::to_string(count * size), data));
  }
  out.bytes.resize(data);
  in.read(reinterpret_cast<char*>(out.bytes.data()), static_cast<std::streamsize>(data));
  if (!in) fail_npy(path, "cannot read its data");
  if (header.fortran && out.shape.size() > 1) {
    out.bytes = to_c_order(out.bytes, out.shape, static_cast<std::size_t>(size));
  }
  return out;
}

}  // namespace attnbench
