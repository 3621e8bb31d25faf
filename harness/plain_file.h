// Whether a path leads to a file. Opening a pipe would wait for its other end, and a device may have no end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace attnbench {

/// "this is a pipe, ..." or "this is a folder; WANTED is required": why `path`, which may be a link, is not what
/// must be read or written there. Empty for a file, and if nothing is there. `wanted`: "a sweep file".
inline std::string why_no_file(const std::filesystem::path& path, std::string_view wanted) {
  std::error_code ec;
  const std::filesystem::file_status status = std::filesystem::status(path, ec);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return "";
  std::string required = "; " + std::string(wanted) + " is required";
  if (std::filesystem::is_directory(status)) return "this is a folder" + required;
  if (std::filesystem::is_fifo(status))
    return "this is a pipe" + required +
           ": write to a file what comes out of the pipe, as in > FILE, and name that";
  return (std::filesystem::is_socket(status) ? "this is a socket" : "this is a device") + required;
}

}  // namespace attnbench
