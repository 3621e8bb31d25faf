# What is installed: `cmake --install BUILD --prefix PREFIX`, the wheel (pyproject.toml) and the .deb (cpack).
#   bin/attnbench
#   lib/attnbench/             libattnbench.so, python/ and peers/, which the program finds beside itself
#   lib/cmake/attnbench/       for find_package(attnbench)
#   include/attnbench/kernels/ headers for plug-ins
#   share/attnbench/configs/   sweeps
set(_private lib/attnbench)
set(_cmake lib/cmake/attnbench)

# attnbench::kernel, which a plug-in links. It is headers only.
add_library(attnbench_kernel INTERFACE)
set_target_properties(attnbench_kernel PROPERTIES EXPORT_NAME kernel)
target_compile_features(attnbench_kernel INTERFACE cxx_std_20)
target_include_directories(attnbench_kernel INTERFACE $<INSTALL_INTERFACE:include/attnbench>)

install(TARGETS attnbench attnbench_kernel EXPORT attnbench RUNTIME DESTINATION bin)
install(TARGETS attnbench_library LIBRARY DESTINATION ${_private})
install(DIRECTORY harness/python/ DESTINATION ${_private}/python FILES_MATCHING PATTERN "*.py" PATTERN "py.typed")
install(DIRECTORY kernels/peers DESTINATION ${_private} FILES_MATCHING PATTERN "*.py")
install(DIRECTORY kernels/contract kernels/common DESTINATION include/attnbench/kernels FILES_MATCHING PATTERN "*.h")
install(DIRECTORY configs DESTINATION share/attnbench FILES_MATCHING PATTERN "*.yaml" PATTERN "*.json")

include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/attnbenchConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attnbenchConfigVersion.cmake DESTINATION ${_cmake})
install(EXPORT attnbench NAMESPACE attnbench:: FILE attnbenchConfig.cmake DESTINATION ${_cmake})

# A wheel also runs where these libraries are not installed, so it holds those that are shared here. (Debian has
# no static fmt and Google Benchmark, and its static yaml-cpp cannot be linked into a library.) RE2 may bring
# Abseil. `auditwheel repair` would put them where the program, which is no part of the package's folder, does not
# find them.
option(ATTNBENCH_CARRY_LIBRARIES "Install yaml-cpp, fmt, Google Benchmark, RE2 and libgomp beside the program, as in a wheel" OFF)
if(ATTNBENCH_CARRY_LIBRARIES)
  install(CODE "set(program $<TARGET_FILE:attnbench>)\nset(library $<TARGET_FILE:attnbench_library>)\nset(to ${_private})")
  install(CODE [[
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program} MODULES ${library} RESOLVED_DEPENDENCIES_VAR files
      PRE_INCLUDE_REGEXES "^lib(yaml-cpp|fmt|benchmark|re2|absl_.+|gomp)[.]so" PRE_EXCLUDE_REGEXES ".")
    foreach(file IN LISTS files)
      cmake_path(GET file FILENAME name)  # the soname, of what may be a link
      file(REAL_PATH ${file} file)
      file(INSTALL ${file} DESTINATION ${CMAKE_INSTALL_PREFIX}/${to} TYPE PROGRAM RENAME ${name})
    endforeach()
  ]])
  set_target_properties(attnbench PROPERTIES INSTALL_RPATH "$ORIGIN/../${_private}")
  set_target_properties(attnbench_library PROPERTIES INSTALL_RPATH "$ORIGIN")
  foreach(_target attnbench attnbench_library)
    target_link_options(${_target} PRIVATE -Wl,--disable-new-dtags)  # RPATH also leads RE2 to its Abseil
  endforeach()
endif()

set(CPACK_PACKAGE_CONTACT "attnbench maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, python3")
include(CPack)
