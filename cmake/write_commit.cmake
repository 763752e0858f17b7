# Run at every build: writes the commit into OUTPUT, and touches it only when it changed,
# so that a commit recompiles one small file. `git archive` fills in the commit below
# (.gitattributes). A repository around an unpacked archive says nothing of its commit.
set(archived "$Format:%H$")
set(commit "${COMMIT}")
if(NOT commit AND archived MATCHES "^[0-9a-f]+$")
  string(SUBSTRING "${archived}" 0 12 commit)
endif()
if(NOT commit)
  execute_process(COMMAND git -C ${SOURCE} rev-parse --show-prefix
                  OUTPUT_VARIABLE inside OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND NOT inside)
    execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT commit)
  set(commit "unknown")
endif()
set(text "#pragma once\n#define LONGHAUL_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
