#include "tests/cli/browser.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace attnbench::testing {
namespace {

using nlohmann::json;

constexpr int kPatienceMs = 60000;  // CI machines are slow to start a browser

}  // namespace

std::optional<std::string> find_chromium() {
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      const std::string path = folder + "/" + name;
      if (access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return std::nullopt;
}

Browser::Browser(const std::string& chromium, const std::string& profile) {
  std::signal(SIGPIPE, SIG_IGN);  // a dead browser is an error of write() and must not end the test
  std::filesystem::create_directories(profile);
  int commands[2], answers[2];
  if (pipe2(commands, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::string data = "--user-data-dir=" + profile;
  std::vector<const char*> args = {chromium.c_str(),          "--headless=new", "--disable-gpu",
                                   "--hide-scrollbars",       "--no-first-run", "--disable-extensions",
                                   "--remote-debugging-pipe", data.c_str()};
  if (geteuid() == 0) args.push_back("--no-sandbox");  // Chromium refuses to sandbox root
  args.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    // The protocol uses descriptors 3 and 4. The pipes first move off these numbers, then to them.
    const int in = fcntl(commands[0], F_DUPFD, 10), out = fcntl(answers[1], F_DUPFD, 10);
    const int nowhere = ::open("/dev/null", O_RDWR);
    dup2(nowhere, 0);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    dup2(in, 3);
    dup2(out, 4);
    ::close(in);
    ::close(out);
    execv(chromium.c_str(), const_cast<char* const*>(args.data()));
    _exit(127);
  }
  ::close(commands[0]);
  ::close(answers[1]);
  to_ = commands[1];
  from_ = answers[0];
  const json target = call("Target.createTarget", {{"url", "about:blank"}});
  session_ =
      call("Target.attachToTarget", {{"targetId", target["targetId"]}, {"flatten", true}})["sessionId"];
  for (const char* domain : {"Page", "Runtime", "Log", "Accessibility"})
    call(std::string(domain) + ".enable");
}

Browser::~Browser() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ::close(to_);
  ::close(from_);
}

json Browser::next_message() {
  for (;;) {
    const std::size_t end = buffer_.find('\0');
    if (end != std::string::npos) {
      const json message = json::parse(buffer_.substr(0, end));
      buffer_.erase(0, end + 1);
      return message;
    }
    pollfd ready{from_, POLLIN, 0};
    if (poll(&ready, 1, kPatienceMs) <= 0) throw std::runtime_error("the browser does not answer");
    char bytes[65536];
    const ssize_t n = read(from_, bytes, sizeof(bytes));
    if (n <= 0) throw std::runtime_error("the browser is gone");
    buffer_.append(bytes, static_cast<std::size_t>(n));
  }
}

json Browser::call(const std::string& method, const json& params) {
  json command = {{"id", ++last_id_}, {"method", method}, {"params", params}};
  if (!session_.empty()) command["sessionId"] = session_;
  const std::string text = command.dump() + '\0';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = write(to_, text.data() + done, text.size() - done);
    if (n <= 0) throw std::runtime_error("the browser is gone");
    done += static_cast<std::size_t>(n);
  }
  for (;;) {
    const json message = next_message();
    if (message.value("id", 0) == last_id_) {
      if (message.contains("error")) throw std::runtime_error(method + ": " + message["error"].dump());
      return message["result"];
    }
    const std::string event = message.value("method", "");
    if (event == "Runtime.consoleAPICalled" || event == "Runtime.exceptionThrown" ||
        event == "Log.entryAdded")
      complaints_.push_back(message["params"].dump().substr(0, 1000));
  }
}

void Browser::open(const std::string& path, const View& view, const std::string& fragment) {
  const bool phone = view.width < 600;
  call("Emulation.setDeviceMetricsOverride",
       {{"width", view.width}, {"height", view.height}, {"deviceScaleFactor", 1}, {"mobile", phone}});
  call("Emulation.setEmulatedMedia",
       {{"features", {{{"name", "prefers-color-scheme"}, {"value", view.dark ? "dark" : "light"}}}}});
  call("Page.navigate", {{"url", "about:blank"}});
  complaints_.clear();
  call("Page.navigate", {{"url", "file://" + path + (fragment.empty() ? "" : "#" + fragment)}});
  if (!wait_for("location.protocol === 'file:' && document.readyState === 'complete'"))
    throw std::runtime_error("the page does not load");
}

json Browser::evaluate(const std::string& expression) {
  const json answer =
      call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
  if (answer.contains("exceptionDetails")) throw std::runtime_error(answer["exceptionDetails"].dump());
  return answer["result"].value("value", json());
}

bool Browser::wait_for(const std::string& expression) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    if (evaluate("Boolean(" + expression + ")") == true) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

void Browser::type_text(const std::string& text) { call("Input.insertText", {{"text", text}}); }

void Browser::press(const std::string& key) {
  for (const char* type : {"keyDown", "keyUp"}) {
    json event = {{"type", type}, {"key", key}, {"code", key}};
    if (key == "Enter") event["text"] = "\r";
    call("Input.dispatchKeyEvent", event);
  }
}

}  // namespace attnbench::testing
