# What attnbench is built from, and the message that says what of it is missing. It is included before
# project(), because a compiler may be missing, too. Keep the packages in step with scripts/setup.sh.
set(attnbench_needs  # the name for find_package=its Debian packages
  CLI11=libcli11-dev yaml-cpp=libyaml-cpp-dev Eigen3=libeigen3-dev benchmark=libbenchmark-dev
  nlohmann_json=nlohmann-json3-dev fmt=libfmt-dev re2=libre2-dev ZLIB=zlib1g-dev)
if(ATTNBENCH_TESTS OR NOT DEFINED ATTNBENCH_TESTS)
  list(APPEND attnbench_needs "GTest=libgtest-dev libgmock-dev")
endif()

# attnbench_stop_if_missing(row...): stops, with one message for all, if there is any.
function(attnbench_stop_if_missing)
  if(NOT ARGN)
    return()
  endif()
  list(TRANSFORM ARGN REPLACE "=.*" "" OUTPUT_VARIABLE names)
  list(TRANSFORM ARGN REPLACE ".*=" "" OUTPUT_VARIABLE packages)
  list(REMOVE_DUPLICATES packages)
  list(JOIN names ", " names)
  list(JOIN packages " " packages)
  message(FATAL_ERROR
    "attnbench: not found: ${names}\n"
    "Install with one of\n"
    "  apt   : sudo apt-get update && sudo apt-get install --no-install-recommends ${packages}\n"
    "  dnf   : sudo dnf install gcc-c++ cmake ninja-build cli11-devel yaml-cpp-devel eigen3-devel google-benchmark-devel json-devel fmt-devel re2-devel zlib-devel gtest-devel gmock-devel\n"
    "  conda : conda install -c conda-forge cxx-compiler cmake ninja cli11 yaml-cpp eigen benchmark nlohmann_json fmt re2 zlib gtest\n"
    "and repeat the command. On Debian and Ubuntu ./scripts/quickstart.sh installs all of it and builds.")
endfunction()

if(NOT CMAKE_CXX_COMPILER AND NOT CMAKE_TOOLCHAIN_FILE)
  set(_compilers c++ g++ clang++ icpx)
  if(NOT "$ENV{CXX}" STREQUAL "")  # a command, maybe with options; pip sets it to the one that built Python
    separate_arguments(_compilers UNIX_COMMAND "$ENV{CXX}")
    list(GET _compilers 0 _compilers)
  endif()
  find_program(ATTNBENCH_CXX NAMES ${_compilers} DOC "Some C++ compiler")
  if(NOT ATTNBENCH_CXX)
    attnbench_stop_if_missing("a C++ compiler=g++" ${attnbench_needs})  # the others cannot be looked for without one
  endif()
endif()
