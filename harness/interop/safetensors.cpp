#include "harness/interop/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "harness/config/near_file.h"
#include "harness/plain_file.h"
#include "harness/results/files.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Header = nlohmann::json;

static_assert(std::endian::native == std::endian::little);  // as the format

constexpr std::size_t kHeaderAlign =
    8;  ///< tensors begin at a multiple of this, as readers that map a file want
constexpr std::size_t kMostNames = 20;  ///< tensor names that an error lists

struct ElementName {
  Element type;
  const char* name;
  int64_t size;
};
constexpr ElementName kElements[] = {
    {Element::kBf16, "BF16", 2}, {Element::kF16, "F16", 2},      {Element::kF32, "F32", 4},
    {Element::kF64, "F64", 8},   {Element::kE4m3, "F8_E4M3", 1}, {Element::kE5m2, "F8_E5M2", 1},
    {Element::kI8, "I8", 1},     {Element::kU8, "U8", 1},        {Element::kU16, "U16", 2},
    {Element::kI32, "I32", 4},   {Element::kI64, "I64", 8},
};

/// Parses the header. The parser itself takes the last of two equal keys; here they are an error.
Header parse_strictly(const std::string& text) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, Header::parse_event_t event, Header& value) {
    if (event == Header::parse_event_t::object_start) keys.emplace_back();
    if (event == Header::parse_event_t::object_end) keys.pop_back();
    if (event == Header::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw std::invalid_argument(
          fmt::format("it has the key '{}' twice", one_line(value.get<std::string>())));
    }
    return true;
  };
  return Header::parse(text, watch);
}

uint64_t unsigned_of(const Header& value) {
  if (!value.is_number_unsigned()) throw std::invalid_argument("a whole number from 0 on is required");
  return value.get<uint64_t>();
}

}  // namespace

int64_t element_size(Element type) { return kElements[static_cast<std::size_t>(type)].size; }
const char* element_name(Element type) { return kElements[static_cast<std::size_t>(type)].name; }

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

int64_t element_count(std::span<const int64_t> shape) {
  if (std::ranges::any_of(shape, [](int64_t n) { return n < 0; })) return -1;
  if (std::ranges::count(shape, 0) > 0) return 0;
  int64_t count = 1;
  for (const int64_t n : shape) {
    if (count > (int64_t{1} << 62) / n) return -1;
    count *= n;
  }
  return count;
}

void write_safetensors(const std::string& path, const Metadata& metadata,
                       std::span<const TensorView> tensors) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const TensorView& t : tensors) {
    const int64_t end = at + element_count(t.shape) * element_size(t.type);
    header[t.name] = {{"dtype", element_name(t.type)}, {"shape", t.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.resize((text.size() + kHeaderAlign - 1) / kHeaderAlign * kHeaderAlign, ' ');
  const auto length = static_cast<uint64_t>(text.size());

  const std::string part = fmt::format("{}.{}.part", path, getpid());
  const auto cannot = [&](const std::string& file) {
    const int error = errno;
    std::remove(part.c_str());
    throw FileError(fmt::format("{}: error: cannot write the file: {}", file, std::strerror(error)));
  };
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  if (!out) cannot(path);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const TensorView& t : tensors) {
    out.write(static_cast<const char*>(t.data), element_count(t.shape) * element_size(t.type));
  }
  out.close();
  if (!out || std::rename(part.c_str(), path.c_str()) != 0) cannot(path);
}

void SafetensorsFile::fail(const std::string& what) const {
  throw TensorFileError(fmt::format("{}: error: {}", one_line(path_), what));
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  if (const std::string why = why_no_file(path, "a safetensors file"); !why.empty()) fail(why);
  in_.open(path, std::ios::binary);
  if (!in_) fail(fmt::format("cannot read the file: {}{}", std::strerror(errno), near_file(path)));
  in_.seekg(0, std::ios::end);
  read_header(static_cast<uint64_t>(in_.tellg()));
}

void SafetensorsFile::read_header(uint64_t file_bytes) {
  uint64_t length = 0;
  if (file_bytes < sizeof length) {
    fail(fmt::format(
        "it has {} bytes, and a safetensors file begins with 8 that give the length of its header",
        file_bytes));
  }
  in_.seekg(0);
  in_.read(reinterpret_cast<char*>(&length), sizeof length);
  if (length > kMaxHeaderBytes) {
    fail(
        fmt::format("its first 8 bytes give a header of {} bytes, and at most {} are allowed: this is no "
                    "safetensors file",
                    length, kMaxHeaderBytes));
  }
  if (length > file_bytes - sizeof length) {
    fail(fmt::format("it is cut short: its header has {} bytes, and {} follow", length,
                     file_bytes - sizeof length));
  }
  std::string text(length, '\0');
  in_.read(text.data(), static_cast<std::streamsize>(length));
  if (!in_) fail("cannot read its header");
  data_at_ = sizeof length + length;

  Header header;
  try {
    header = parse_strictly(text);
    if (!header.is_object()) throw std::invalid_argument("it is no object");
  } catch (const std::exception& e) {
    fail(fmt::format("its header is no valid JSON: {}", shorten_end(one_line(e.what()), 300)));
  }
  for (const auto& [name, value] : header.items()) {
    const std::string what = name == "__metadata__" ? name : fmt::format("tensor '{}'", one_line(name));
    try {
      if (name == "__metadata__") {
        metadata_ = value.get<Metadata>();
        continue;
      }
      const Header& shape = value.at("shape");
      const Header& offsets = value.at("data_offsets");
      if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2 || value.size() != 3) {
        throw std::invalid_argument(
            R"({"dtype": NAME, "shape": [...], "data_offsets": [BEGIN, END]} is required)");
      }
      std::vector<int64_t> dims;
      for (const Header& n : shape)
        dims.push_back(static_cast<int64_t>(std::min<uint64_t>(unsigned_of(n), INT64_MAX)));
      entries_.emplace(name, entry_from(what, value.at("dtype").get<std::string>(), std::move(dims),
                                        unsigned_of(offsets[0]), unsigned_of(offsets[1])));
    } catch (const Header::exception& e) {
      fail(fmt::format("{}: {}", what, shorten_end(one_line(e.what()), 300)));
    } catch (const std::invalid_argument& e) {
      fail(fmt::format("{}: {}", what, e.what()));
    }
  }
  check_layout(file_bytes - data_at_);
}

SafetensorsFile::Entry SafetensorsFile::entry_from(const std::string& what, const std::string& type,
                                                   std::vector<int64_t> shape, uint64_t begin,
                                                   uint64_t end) const {
  const auto found = std::find_if(std::begin(kElements), std::end(kElements),
                                  [&](const ElementName& e) { return type == e.name; });
  if (found == std::end(kElements)) {
    std::vector<std::string> names;
    for (const ElementName& e : kElements) names.push_back(e.name);
    fail(fmt::format("{}: dtype '{}' is unknown; attnbench reads {}", what, one_line(type),
                     fmt::join(names, ", ")));
  }
  const int64_t count = element_count(shape);
  if (count < 0 || count > (int64_t{1} << 62) / found->size) {
    fail(fmt::format("{}: shape {} is too large", what, shape_text(shape)));
  }
  const auto bytes = static_cast<uint64_t>(count * found->size);
  if (end < begin || end - begin != bytes) {
    fail(fmt::format("{}: {} of shape {} takes {} bytes, and data_offsets [{}, {}] hold {}", what,
                     found->name, shape_text(shape), bytes, begin, end,
                     end < begin ? "none" : std::to_string(end - begin)));
  }
  return {found->type, std::move(shape), begin, end};
}

/// Tensors must lie behind each other and fill the file: bytes of two tensors or of none are a mistake.
void SafetensorsFile::check_layout(uint64_t data_bytes) const {
  using Place = std::tuple<uint64_t, uint64_t, std::string>;
  std::vector<Place> places;
  for (const auto& [name, e] : entries_) places.emplace_back(e.begin, e.end, one_line(name));
  std::ranges::sort(places);
  uint64_t at = 0;
  std::string before;
  for (const auto& [begin, end, name] : places) {
    if (end > data_bytes) {
      fail(fmt::format("tensor '{}' ends at byte {} of the data, and the file has {}: it is cut short", name,
                       end, data_bytes));
    }
    if (begin < at)
      fail(fmt::format("tensors '{}' and '{}' overlap at byte {} of the data", before, name, begin));
    if (begin > at) {
      fail(fmt::format("bytes {} to {} of the data, before tensor '{}', belong to no tensor", at, begin,
                       name));
    }
    at = end;
    before = name;
  }
  if (at != data_bytes) {
    fail(fmt::format("the last {} of {} bytes of the data belong to no tensor", data_bytes - at, data_bytes));
  }
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, e] : entries_) {
    if (names.size() == kMostNames) {
      names.push_back("...");
      break;
    }
    names.push_back(one_line(known));
  }
  fail(fmt::format("it has no tensor '{}', only {}", one_line(name),
                   names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

std::vector<unsigned char> SafetensorsFile::read(const std::string& name) {
  const Entry& e = entry(name);
  std::vector<unsigned char> bytes(e.end - e.begin);
  in_.clear();
  in_.seekg(static_cast<std::streamoff>(data_at_ + e.begin));
  in_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!in_) fail(fmt::format("cannot read tensor '{}'", one_line(name)));
  return bytes;
}

std::vector<int64_t> SafetensorsFile::read_integers(const std::string& name) {
  const Entry& e = entry(name);
  const bool wide = e.type == Element::kI64;
  if (!wide && e.type != Element::kI32) {
    fail(fmt::format("tensor '{}' is {}; I32 or I64 is required", one_line(name), element_name(e.type)));
  }
  const std::vector<unsigned char> bytes = read(name);
  const std::size_t size = wide ? 8 : 4;
  std::vector<int64_t> out(bytes.size() / size);
  for (std::size_t i = 0; i < out.size(); ++i) {
    int32_t narrow = 0;
    if (wide) {
      std::memcpy(&out[i], &bytes[i * size], size);
    } else {
      std::memcpy(&narrow, &bytes[i * size], size);
      out[i] = narrow;
    }
  }
  return out;
}

}  // namespace attnbench
