# longhaul_pytest(name FILE [LABELS ...] [TIMEOUT s] [CHECK words] [WAITS] [IN NAME])
#   CHECK: the cases that pytest's -k selects by these words run as another test, check_NAME,
#   with the label check: `make check` runs it, `make test` does not, for the suite has them.
#   WAITS: takes less than half a core, for it waits for time to pass: half a place among
#   the tests that run at once (tools/test.sh).
#   IN: the test NAME of longhaul_together runs the suite for `make test`. By its own name,
#   with the label alone, `ctest -R` still runs it by itself.
#   One Python suite of the current folder; it drives the programs of this build. Its cases
#   that are marked soak run as another test, more_NAME with the label soak.
function(longhaul_pytest name file)
  cmake_parse_arguments(ARG "WAITS" "TIMEOUT;CHECK;IN" "LABELS" ${ARGN})
  if(ARG_IN)
    set(ARG_LABELS alone)
    set_property(DIRECTORY APPEND PROPERTY LONGHAUL_${ARG_IN} ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  set(command ${LONGHAUL_PYTHON} -m pytest -q -p no:cacheprovider
      --confcutdir=${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  add_test(NAME ${name} COMMAND ${command} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  set(names ${name})
  file(STRINGS ${file} marked REGEX "(later|[^.a-z_]split)\\(|mark\\.soak")
  if(marked)
    add_test(NAME more_${name} COMMAND ${command} --soak
             WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties(more_${name} PROPERTIES LABELS soak TIMEOUT 1800)
    list(APPEND names more_${name})
  endif()
  if(ARG_CHECK)
    add_test(NAME check_${name} COMMAND ${command} -k ${ARG_CHECK}
             WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties(check_${name} PROPERTIES LABELS check TIMEOUT ${ARG_TIMEOUT})
    list(APPEND names check_${name})
  endif()
  if(ARG_WAITS)  # started first, also where no test was timed yet: the others run beside it
    set_tests_properties(${name} PROPERTIES COST 200)
  endif()
  longhaul_places(ARG_WAITS ${names})
  longhaul_pytest_environment(${names})
endfunction()

# longhaul_together(name LABEL)
#   The suites of this folder that are IN name, in one process: most of what each of them takes by
#   itself is the import of torch and transformers, and the model that they share is made once.
function(longhaul_together name label)
  get_property(files DIRECTORY PROPERTY LONGHAUL_${name})
  add_test(NAME ${name} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
           COMMAND ${LONGHAUL_PYTHON} -m pytest -q -p no:cacheprovider
                   --confcutdir=${PROJECT_SOURCE_DIR}/tests ${files})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 900 COST 100)
  longhaul_places(OFF ${name})
  longhaul_pytest_environment(${name})
endfunction()

function(longhaul_pytest_environment)
  set_tests_properties(${ARGN} PROPERTIES
    ENVIRONMENT "LONGHAUL_BIN_DIR=${PROJECT_BINARY_DIR}/bin;OMP_NUM_THREADS=1;PYTHONDONTWRITEBYTECODE=1;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()
