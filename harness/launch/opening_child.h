// A child process that opens a plug-in. Code of a plug-in runs when it is opened, so a supervisor opens
// none: it takes the answer of such a child.
#pragma once

#include <functional>
#include <string>

namespace attnbench {

struct Opening {
  std::string file;  ///< absolute path
  std::string runs;  ///< what runs when it is opened, for errors: "its static initialisers"
  double limit_s;
  /// In the child: opens the file and writes the answer to the descriptor. It throws nothing.
  std::function<void(int answer)> open;
};

/// Runs `open` in a child process and returns what it wrote. The child leads a process group, which is
/// killed when the child has ended, at the limit, and by a signal that ends this process; the child dies
/// with this process. After two seconds a line on stderr says what is still being opened. The child's stdout
/// is dropped. Its stderr goes to std::cerr, and is cut if it is long. Throws PluginError;
/// LoadCrash if there is no answer.
std::string answer_of_child(const Opening& opening);

/// Writes the answer. For `open`.
void write_answer(int answer, const std::string& text);

}  // namespace attnbench
