// Replaces the program's write() and divides every time in what the worker reports by ten. Only digits
// change, so the report stays well formed.
// Source: gpu-mode/pygpubench, submission_pipe_interpose among its exploits.
#include <string>

#include "tests/cheats/cheat.h"
#include "tests/cheats/got.h"

namespace attnbench::cheats {
namespace {

/// "key":123.4 becomes "key":12.34.
void divide(std::string& text, const std::string& key) {
  for (std::size_t at = text.find(key); at != text.npos; at = text.find(key, at + 1)) {
    std::size_t end = at + key.size();
    const bool list = text[end] == '[';
    if (list) ++end;
    while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) != 0)) {
      const std::size_t begin = end;
      std::size_t used = 0;
      const double value = std::stod(text.substr(begin, 32), &used);
      char shorter[40];
      std::snprintf(shorter, sizeof shorter, "%.*g", 15, value / 10);
      std::string number(shorter);
      if (number.find_first_of(".e") == number.npos) number += ".0";
      text.replace(begin, used, number);
      end = begin + number.size();
      if (list && end < text.size() && text[end] == ',') ++end;
    }
  }
}

ssize_t edited_write(int fd, const void* data, std::size_t size) {
  std::string text(static_cast<const char*>(data), size);
  if (text.find("{\"record\"") != text.npos) {
    for (const char* key : {"\"real_time\":", "\"cpu_time\":", "\"median_us\":", "\"lo_us\":", "\"hi_us\":",
                            "\"samples_us\":", "\"mean_us\":", "\"cpu_time_us\":", "\"fresh_us\":"}) {
      divide(text, key);
    }
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = write(fd, text.data() + done, text.size() - done);
      if (n <= 0) return n;
      done += static_cast<std::size_t>(n);
    }
    return static_cast<ssize_t>(size);
  }
  return write(fd, data, size);
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::once_flag once;
  std::call_once(once, [] { replace_function("write", reinterpret_cast<void*>(edited_write)); });
  return compute(op, context, message);
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(edits_records, "replaces write() and divides the times that the worker reports by ten",
                k.launch = attnbench::cheats::launch);
