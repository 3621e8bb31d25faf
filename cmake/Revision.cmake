# Writes OUT with the version and git revision. Does not touch OUT if nothing changed, so nothing is rebuilt.
# For a tree without git (an archive, a copy on another machine), -DATTNBENCH_REVISION=... gives the revision.
execute_process(COMMAND git -c safe.directory=${SOURCE} -C ${SOURCE} describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE revision ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(REVISION)
  set(revision "${REVISION}")
elseif(failed)
  set(revision "unknown")
endif()
set(text "#pragma once\n#define ATTNBENCH_VERSION \"${VERSION}\"\n#define ATTNBENCH_REVISION \"${revision}\"\n#define ATTNBENCH_BUILD_TYPE \"${TYPE}\"\n")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT "${old}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()
