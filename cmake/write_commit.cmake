# Run at every build: writes the commit into OUTPUT, and touches it only when it changed,
# so that a commit recompiles one small file.
set(commit "${COMMIT}")
if(NOT commit)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET RESULT_VARIABLE failed)
  if(failed OR NOT commit)
    set(commit "unknown")
  endif()
endif()
set(text "#pragma once\n#define LONGHAUL_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
