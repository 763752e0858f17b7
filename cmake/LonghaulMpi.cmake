# longhaul_mpi_test(name SOURCES ... DEPS ... RANKS n... [PRIVATE ...] [TIMEOUT s])
#   One GoogleTest binary with the main of tests/dist, and one test name_n for each rank
#   count, started by mpirun. More ranks than cores are fine. Does nothing without MPI.
function(longhaul_mpi_test name)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT" "SOURCES;DEPS;RANKS;PRIVATE" ${ARGN})
  if(NOT LONGHAUL_TESTS OR NOT LONGHAUL_MPI)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/dist/mpi_main.cpp)
  if(ARG_TORCH)
    longhaul_test_code(${name} TORCH)
  else()
    longhaul_test_code(${name})
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PRIVATE longhaul::${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE longhaul::comm ${ARG_PRIVATE} GTest::gtest)
  foreach(ranks IN LISTS ARG_RANKS)
    math(EXPR places "2 * ${ranks}")
    add_test(NAME ${name}_${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -n ${ranks}
                     $<TARGET_FILE:${name}> --ranks=${ranks} --gtest_brief=1
             WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    set(environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        OMP_NUM_THREADS=1 LONGHAUL_SOURCE=${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_${ranks} PROPERTIES LABELS dist PROCESSORS ${places}
                         TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${environment}")
  endforeach()
endfunction()
