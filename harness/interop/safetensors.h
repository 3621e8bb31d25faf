// Files of tensors in the safetensors format: eight bytes with the length of a JSON header, the header, then the
// bytes of all tensors. Files may come from anywhere, so every number in them is checked before it is used.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/error.h"

namespace attnbench {

/// A file of tensors that cannot be read or is not what it should be. what() begins with the path.
class TensorFileError : public Error {
 public:
  explicit TensorFileError(const std::string& what) : Error(what, kExitUsage, "") {}
};

/// Types of elements: those of the contract, and those that NumPy and traces write.
enum class Element { kBf16, kF16, kF32, kF64, kE4m3, kE5m2, kI8, kU8, kU16, kI32, kI64 };

int64_t element_size(Element type);      ///< in bytes
const char* element_name(Element type);  ///< as safetensors writes it: "BF16", "F8_E4M3"

/// "(4, 32, 128)".
std::string shape_text(std::span<const int64_t> shape);

/// Elements of a shape; -1 if a dimension is negative or the product exceeds 2^62.
int64_t element_count(std::span<const int64_t> shape);

/// A tensor in memory that a file is written from. Rows are dense, the last dimension varies fastest.
struct TensorView {
  std::string name;
  Element type = Element::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  std::vector<int64_t> strides = {};  ///< in elements, for write_dump() alone; empty: dense
};

using Metadata = std::map<std::string, std::string>;

/// Writes the file under a temporary name and renames it, so that a reader sees all of it or nothing. Throws
/// FileError.
void write_safetensors(const std::string& path, const Metadata& metadata,
                       std::span<const TensorView> tensors);

/// An open file. Its header is read and checked at once, a tensor when it is asked for.
class SafetensorsFile {
 public:
  struct Entry {
    Element type;
    std::vector<int64_t> shape;
    uint64_t begin, end;  ///< bytes behind the header
  };

  /// The format's own limit. A longer header is refused before memory is taken for it.
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  /// Throws TensorFileError, which names the file and the tensor.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  bool has(const std::string& name) const { return entries_.count(name) > 0; }

  /// The tensor of this name. Throws TensorFileError with the names that there are.
  const Entry& entry(const std::string& name) const;
  std::vector<unsigned char> read(const std::string& name);
  /// A tensor of I32 or I64, as int64.
  std::vector<int64_t> read_integers(const std::string& name);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void read_header(uint64_t file_bytes);
  Entry entry_from(const std::string& name, const std::string& type, std::vector<int64_t> shape,
                   uint64_t begin, uint64_t end) const;
  void check_layout(uint64_t data_bytes) const;

  std::string path_;
  std::ifstream in_;
  uint64_t data_at_ = 0;
  Metadata metadata_;
  std::map<std::string, Entry> entries_;
};

}  // namespace attnbench
