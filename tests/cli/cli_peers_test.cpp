// run --peers: libraries of Python that run beside other kernels, or are left out. The program is used from a
// folder with peers of the tests' own.
#include <gmock/gmock.h>

#include "tests/cli/python.h"

namespace attnbench::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr const char* kGone = "peer gone: not installed; pip install no-such-package\n";
constexpr const char* kBroken = "peer broken: left out: KeyError: 'x' (peer_broken.py:2)\n";

class CliPeers : public PythonTest {
 protected:
  void SetUp() override {
    PythonTest::SetUp();
    if (IsSkipped()) return;
    const fs::path built = fs::path(ATTNBENCH_PROGRAM).parent_path();
    fs::create_directories(scratch.dir() / "program" / "peers");
    for (const char* file : {"attnbench", "libattnbench.so"}) {
      fs::copy_file(built / file, scratch.dir() / "program" / file);
    }
    fs::create_symlink(built / "python", scratch.dir() / "program" / "python");
    fs::copy_file(python_fixture("attend.py"), scratch.dir() / "program" / "peers" / "attend.py");
    peer("here", kernel("here"));
    peer("gone", "ab.need('no_such_package', 'pip install no-such-package')\n");
    peer("broken", "{}['x']\n");
  }

  static std::string kernel(const std::string& name) {
    return "import attend\n"
           "@ab.attention('packed causal bf16 fp32', device='cpu')\n"
           "def " +
           name +
           "(c):\n"
           "    return lambda: attend.attend(c)\n";
  }
  void peer(const std::string& name, const std::string& text) const {
    scratch.write("program/peers/peer_" + name + ".py", "import attnbench as ab\n" + text);
  }
  Outcome start(const std::vector<std::string>& args) const {
    return Running(scratch, scratch.path("program/attnbench"), args).wait();
  }
  /// Runs one case, and fills `records`.
  Outcome run_case(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run", "--case",    kPythonCase, "--device", "cpu",
                                     "-q",  "--no-time", "--out",     "out"};
    args.insert(args.end(), more.begin(), more.end());
    fs::remove_all(scratch.dir() / "out");
    Outcome o = start(args);
    records.clear();
    if (!fs::exists(scratch.dir() / "out" / "results.json")) return o;
    for (const nlohmann::json& r : read_records(scratch.dir() / "out")) records[r["kernel"]] = r;
    return o;
  }
};

TEST_F(CliPeers, AllRunsThoseThatAreInstalledAndSaysOnceHowToInstallTheOthers) {
  const Outcome o = run_case({"--peers", "all"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(records, UnorderedElementsAre(Key("cpu"), Key("here")));
  EXPECT_EQ(records["here"]["status"], "pass");
  EXPECT_THAT(o.err, AllOf(HasSubstr(kGone), HasSubstr(kBroken)));
  EXPECT_EQ(o.err.find(kGone), o.err.rfind(kGone));
}

TEST_F(CliPeers, ANamedPeerThatIsAbsentIsLeftOut) {
  const Outcome o = run_case({"--peers", "gone,here"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(o.err, kGone);
  EXPECT_THAT(records, UnorderedElementsAre(Key("cpu"), Key("here")));
}

TEST_F(CliPeers, AnAbsentPeerIsLookedForOnce) {
  const std::string count = "/dev/shm/attnbench_peer_count";  // what is opened writes in few folders
  std::filesystem::remove(count);
  peer("counts", "open('" + count + "', 'a').write('x')\nab.need('no_such_package', 'pip install it')\n");
  EXPECT_EQ(run_case({"--peers", "counts"}).exit_code, 0);
  EXPECT_THAT(records, UnorderedElementsAre(Key("cpu")));
  EXPECT_EQ(read_text(count), "x");  // and not again by workers
  std::filesystem::remove(count);
}

TEST_F(CliPeers, WhatIsNotNamedIsNotImported) {
  EXPECT_THAT(run_case({"--peers", "here"}).err, IsEmpty());
  EXPECT_THAT(run_case({}).err, IsEmpty());
  EXPECT_THAT(records, UnorderedElementsAre(Key("cpu")));
}

TEST_F(CliPeers, ANamedPeerThatIsBrokenAndAnUnknownNameAreErrors) {
  Outcome o = run_case({"--peers", "broken"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("error: --peers broken: KeyError: 'x' (peer_broken.py:2)"));
  o = run_case({"--peers", "her"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err,
              HasSubstr("--peers her: no such peer; did you mean 'here'? there are all, broken, gone, here"));
}

TEST_F(CliPeers, WithoutAnInterpreterThereAreNone) {
  const Outcome o = run_case({"--peers", "all", "--python", "no-such-python"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("error: --peers: --python no-such-python: there is no such program"));
}

TEST_F(CliPeers, APeerThatCannotBeImportedSaysWhy) {
  scratch.write("program/peers/half.py", "import no_such_part\n");
  peer("half", "ab.need('half', 'pip install half')\n");
  EXPECT_EQ(run_case({"--peers", "half"}).err,
            "peer half: cannot be imported: No module named 'no_such_part'; pip install half\n");
  const Outcome o = start({"kernels", "--plugin", scratch.path("program/peers/peer_gone.py")});
  EXPECT_EQ(o.exit_code, 2);  // a plug-in that is absent is no peer
  EXPECT_THAT(o.err, HasSubstr("peer_gone.py: no_such_package: not installed; pip install no-such-package"));
}

TEST_F(CliPeers, ChosenKernelsRunBesideThem) {
  peer("there", kernel("there"));
  run_case({"--peers", "here,there", "--kernel", "cpu"});
  EXPECT_THAT(records, UnorderedElementsAre(Key("cpu"), Key("here"), Key("there")));
  run_case({"--peers", "here,there", "--kernel", "there"});
  EXPECT_THAT(records, UnorderedElementsAre(Key("there")));
}

TEST_F(CliPeers, AProcessThatIsAskedForRunsThemToo) {
  const Outcome o = run_case({"--peers", "here,gone", "--in-process"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(o.err, kGone);
  EXPECT_THAT(records, UnorderedElementsAre(Key("cpu"), Key("here")));
}

TEST_F(CliPeers, TheLineThatRepeatsACaseNamesTheFile) {
  run_case({"--peers", "here"});
  std::vector<std::string> words = shell_words(records["here"]["repro"]);
  words.erase(words.begin());
  words.insert(words.end(), {"--out", "again"});
  const Outcome o = start(words);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(read_records(scratch.dir() / "again").at(0)["kernel"], "here");
}

TEST_F(CliPeers, AGateComparesWithOne) {
  peer("there", kernel("there"));
  const Outcome o =
      start({"gate", "--case", kPythonCase, "--device", "cpu", "--no-time", "-q", "--peers", "here,gone",
             "--plugin", scratch.path("program/peers/peer_there.py"), "--kernel", "there", "--against-kernel",
             "here", "--allow-missing", "--allow-new", "--out", "gate"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_EQ(o.err.find(kGone), o.err.rfind(kGone));
  EXPECT_THAT(o.err, HasSubstr(kGone));
}

TEST_F(CliPeers, EachPeerOfTheTreeLoadsOrSaysWhatToInstall) {
  int peers = 0;
  const Outcome o = run_attnbench(scratch, {"kernels", "--peers", "all"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  for (const auto& entry : fs::directory_iterator(source_path("kernels/peers"))) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with("peer_")) continue;
    ++peers;
    const std::string name = entry.path().stem().string().substr(5);
    const bool listed = o.out.find("/" + file + "\n") != std::string::npos;
    if (!listed) {
      EXPECT_THAT(o.err, HasSubstr("peer " + name + ": not installed; pip install ")) << o.err;
    }
  }
  EXPECT_GE(peers, 13);
}

}  // namespace
}  // namespace attnbench::testing
