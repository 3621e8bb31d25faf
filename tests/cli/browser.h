// A headless Chromium, controlled by its DevTools protocol over a pipe.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace attnbench::testing {

/// Path of a Chromium or Chrome in PATH; nullopt if there is none.
std::optional<std::string> find_chromium();

class Browser {
 public:
  /// `profile`: a folder for the browser's files. Throws std::runtime_error if the browser does not start.
  Browser(const std::string& chromium, const std::string& profile);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  struct View {
    int width = 1280;
    int height = 900;
    bool dark = false;
  };
  /// Opens a file and waits until it is loaded and drawn. `fragment` without '#'.
  void open(const std::string& path, const View& view, const std::string& fragment = "");

  /// Returns the value of a JavaScript expression. Throws if the expression throws, with the same message.
  nlohmann::json evaluate(const std::string& expression);
  /// Waits up to ten seconds until the expression is true.
  bool wait_for(const std::string& expression);
  void type_text(const std::string& text);
  void press(const std::string& key);
  /// Sends any other command of the protocol and returns its result.
  nlohmann::json call(const std::string& method, const nlohmann::json& params = nlohmann::json::object());

  /// Console messages, uncaught exceptions and complaints of the browser since the last open().
  std::vector<std::string> complaints() const { return complaints_; }

 private:
  nlohmann::json next_message();

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  int last_id_ = 0;
  std::string session_, buffer_;
  std::vector<std::string> complaints_;
};

}  // namespace attnbench::testing
