# One target per folder. A folder may include what its target links: see the README of each folder, and
# tests/unit/tree_include_rules_test.cpp, which checks the include lines themselves.
# Functions of libattnbench.so call each other directly, as in a program.
set(_host_flags -fno-semantic-interposition -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND _host_flags -Wno-restrict)  # false alarms on std::string operator+: gcc.gnu.org/PR105329
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  list(APPEND _host_flags -Wno-dangling-reference)  # false alarms on objects that refer: gcc.gnu.org/PR107532
endif()
if(ATTNBENCH_WERROR)
  list(APPEND _host_flags -Werror)
endif()
if(ATTNBENCH_MARCH)
  list(APPEND _host_flags -march=${ATTNBENCH_MARCH})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND _host_flags -march=x86-64-v3)
endif()

add_library(attnbench_options INTERFACE)
target_include_directories(attnbench_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(attnbench_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_host_flags}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;--Wno-deprecated-gpu-targets>")
# The same setting for all targets, because Eigen's templates must be the same in everything that is linked
# together. Callers start threads; a product never does.
target_compile_definitions(attnbench_options INTERFACE EIGEN_DONT_PARALLELIZE)
if(ATTNBENCH_SANITIZE)
  target_compile_options(attnbench_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ATTNBENCH_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  target_link_options(attnbench_options INTERFACE -fsanitize=${ATTNBENCH_SANITIZE})
endif()

if(ATTNBENCH_FUZZ)
  target_compile_options(attnbench_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>")
endif()

# attnbench_folder(TARGET name LINK libraries... [DIR folder] [OPS prefix] [COLD]): a static library of the .cpp files of
# this folder, and of the files harness/ops/<op>/<prefix>*.cpp.
# COLD: its speed depends on files and people, not on arithmetic. It is compiled with -Og, which takes half
# the time.
function(attnbench_folder)
  cmake_parse_arguments(arg "COLD" "TARGET;DIR;OPS" "LINK" ${ARGN})
  if(NOT arg_DIR)
    set(arg_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  set(patterns ${arg_DIR}/*.cpp)
  if(arg_OPS)
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/harness/ops/*/${arg_OPS}*.cpp)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(sources)
    add_library(${arg_TARGET} STATIC ${sources})
    target_link_libraries(${arg_TARGET} PUBLIC attnbench_options ${arg_LINK})
    set_target_properties(${arg_TARGET} PROPERTIES POSITION_INDEPENDENT_CODE ON)  # for libattnbench.so
    if(arg_COLD)
      target_compile_options(${arg_TARGET} PRIVATE $<$<CONFIG:Release>:-Og>)
    endif()
  else()
    add_library(${arg_TARGET} INTERFACE)
    target_link_libraries(${arg_TARGET} INTERFACE attnbench_options ${arg_LINK})
  endif()
endfunction()

# attnbench_group(OUT size files...): groups .cu files in a unity build (CMAKE_UNITY_BUILD). OUT then lists
# generated files in the build folder, each of which includes up to `size` of the .cu files. This saves time
# because most of what is compiled is headers. In other builds OUT lists the files themselves.
function(attnbench_group out size)
  set(files ${ARGN})
  if(CMAKE_UNITY_BUILD)
    set(rest ${files})
    set(files "")
    while(rest)
      list(SUBLIST rest 0 ${size} group)
      list(REMOVE_ITEM rest ${group})
      list(GET group 0 first)
      cmake_path(GET first STEM name)
      cmake_path(GET first PARENT_PATH folder)
      cmake_path(GET folder FILENAME folder)
      list(TRANSFORM group REPLACE "(.+)" "#include \"\\1\"")
      list(JOIN group "\n" text)
      set(file ${CMAKE_CURRENT_BINARY_DIR}/groups/${folder}/${name}.group.cu)
      file(CONFIGURE OUTPUT ${file} CONTENT "${text}\n" @ONLY)
      list(APPEND files ${file})
    endwhile()
    # From CMake 3.31 on, a unity build would join these files once more.
    set_source_files_properties(${files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  set(${out} ${files} PARENT_SCOPE)
endfunction()
