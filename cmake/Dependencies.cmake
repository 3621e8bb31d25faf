# Finds every dependency. If some are missing, stops with one message that lists them all and says how to
# install them. Nothing is downloaded.
set(_missing "")
macro(attnbench_need package)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    list(APPEND _missing ${package})
  endif()
endmacro()

attnbench_need(CLI11)
attnbench_need(yaml-cpp)
attnbench_need(Eigen3)
attnbench_need(benchmark)
attnbench_need(nlohmann_json)
attnbench_need(fmt)
attnbench_need(OpenMP COMPONENTS CXX)
attnbench_need(Threads)
if(ATTNBENCH_TESTS)
  attnbench_need(GTest)
endif()

if(_missing)
  list(JOIN _missing ", " _missing_text)
  message(FATAL_ERROR
    "attnbench: not found: ${_missing_text}\n"
    "Install all that it needs with one of\n"
    "  apt   : sudo apt-get install g++ cmake ninja-build libcli11-dev libyaml-cpp-dev libeigen3-dev libbenchmark-dev nlohmann-json3-dev libfmt-dev libgtest-dev libgmock-dev\n"
    "  dnf   : sudo dnf install gcc-c++ cmake ninja-build cli11-devel yaml-cpp-devel eigen3-devel google-benchmark-devel json-devel fmt-devel gtest-devel gmock-devel\n"
    "  conda : conda install -c conda-forge cxx-compiler cmake ninja cli11 yaml-cpp eigen benchmark nlohmann_json fmt gtest\n"
    "or on Debian and Ubuntu run ./scripts/quickstart.sh, which does it.")
endif()

# yaml-cpp before 0.8 exports a plain target name.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
