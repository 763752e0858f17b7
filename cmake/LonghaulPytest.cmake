# longhaul_pytest(name FILE [LABELS ...] [TIMEOUT s])
#   One Python suite of the current folder; it drives the programs of this build.
function(longhaul_pytest name file)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name}
           COMMAND ${LONGHAUL_PYTHON} -m pytest -q -p no:cacheprovider
                   --confcutdir=${PROJECT_SOURCE_DIR}/tests
                   ${CMAKE_CURRENT_SOURCE_DIR}/${file}
           WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "LONGHAUL_BIN_DIR=${PROJECT_BINARY_DIR}/bin;OMP_NUM_THREADS=1;PYTHONDONTWRITEBYTECODE=1;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()
