# Headers are most of what a unit costs, so files of a target are compiled together: names in
# unnamed namespaces must differ within a folder. Files with options of their own stay alone.
set(LONGHAUL_JOINED_FILES 16)
function(longhaul_join target)
  if(LONGHAUL_JOIN)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${LONGHAUL_JOINED_FILES})
    # Meant for headers; a joined file is a source of its own all the same.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# longhaul_alone(files...): tests with helpers that are named like another file's.
function(longhaul_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# longhaul_library(name SOURCES ... DEPS ... [TORCH] [HOT] [OWN_FLAGS])
#   One static library per folder. DEPS is exactly the folder's row of the
#   include table (docs/tour.md); TORCH adds LibTorch, HOT is for loops over data. With
#   OWN_FLAGS the library takes no precompiled header, which is compiled without its flags.
function(longhaul_library name)
  cmake_parse_arguments(ARG "TORCH;HOT;OWN_FLAGS" "" "SOURCES;DEPS;PRIVATE" ${ARGN})
  set(target longhaul_${name})
  if(NOT ARG_SOURCES)  # headers only
    add_library(${target} INTERFACE)
    add_library(longhaul::${name} ALIAS ${target})
    foreach(dep IN LISTS ARG_DEPS)
      target_link_libraries(${target} INTERFACE longhaul::${dep})
    endforeach()
    return()
  endif()
  add_library(${target} STATIC ${ARG_SOURCES})
  longhaul_join(${target})
  add_library(longhaul::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${LONGHAUL_WARNINGS})
  if(ARG_HOT)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O3>)
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PUBLIC longhaul::${dep})
  endforeach()
  target_link_libraries(${target} PRIVATE ${ARG_PRIVATE})
  if(ARG_TORCH)
    target_link_libraries(${target} PUBLIC longhaul_torch)
  endif()
  if(ARG_OWN_FLAGS)
    return()
  endif()
  if(NOT ARG_TORCH AND ARG_HOT)
    longhaul_header(${target} hot)
  elseif(NOT ARG_TORCH)
    longhaul_header(${target} plain)
  elseif(NOT ARG_HOT)  # LibTorch's header is for one level of optimisation
    longhaul_header(${target} torch)
  endif()
endfunction()

# longhaul_tool(name SOURCES ... DEPS targets... [TORCH] [IN folder])
#   A program that tests and measurements start; in bin/ where no folder is named.
function(longhaul_tool name)
  cmake_parse_arguments(ARG "TORCH" "IN" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_IN)
    set(ARG_IN ${PROJECT_BINARY_DIR}/bin)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE ${LONGHAUL_WARNINGS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${ARG_IN})
  if(ARG_TORCH)
    longhaul_header(${name} torch)
  else()
    longhaul_header(${name} plain)
  endif()
endfunction()

# longhaul_options(options files...): options of files beside those of their target. Such files
# are compiled alone, without a precompiled header.
function(longhaul_options options)
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_OPTIONS "${options}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# longhaul_precompiled(kind headers...): a precompiled header, which targets reuse.
function(longhaul_precompiled kind)
  if(NOT LONGHAUL_PCH)
    return()
  endif()
  set(target longhaul_${kind}_pch)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${target}.cpp CONTENT "")
  add_library(${target} OBJECT ${PROJECT_BINARY_DIR}/${target}.cpp)
  target_link_libraries(${target} PRIVATE fmt::fmt)
  target_compile_options(${target} PRIVATE ${LONGHAUL_WARNINGS})
  target_precompile_headers(${target} PRIVATE ${ARGN})
endfunction()

# longhaul_header(target kind): the target takes the precompiled header of this kind.
function(longhaul_header target kind)
  if(NOT LONGHAUL_PCH)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    # The precompiled headers are for -fPIC; CMake gives programs -fPIE.
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM longhaul_${kind}_pch)
endfunction()

# longhaul_unoptimised(target): options of tests with LibTorch. Compiling them is most of a first
# build, and they spend their time in libraries. Other tests would take several times as long,
# for the linker prefers their copies of templates to a library's. libc's checks need optimising.
function(longhaul_unoptimised target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>
                         $<$<CONFIG:Release>:-U_FORTIFY_SOURCE>)
endfunction()

# longhaul_test_code(target [TORCH] [OWN_FLAGS]): how the code of a test is compiled. OWN_FLAGS is
# that of longhaul_library.
function(longhaul_test_code target)
  cmake_parse_arguments(ARG "TORCH;OWN_FLAGS" "" "" ${ARGN})
  target_compile_options(${target} PRIVATE ${LONGHAUL_WARNINGS})
  if(ARG_OWN_FLAGS)
    return()
  endif()
  if(ARG_TORCH)
    longhaul_unoptimised(${target})
    longhaul_header(${target} torch_test)
  else()
    longhaul_header(${target} test)
  endif()
endfunction()

# longhaul_places(WAITS TEST...)
#   What tests take of the places among those that run at once, of which a core has two: one
#   where the variable WAITS is true, else both (tools/test.sh).
function(longhaul_places waits)
  set(places 2)
  if(${waits})
    set(places 1)
  endif()
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS ${places})
endfunction()

# longhaul_test(name SOURCES ... DEPS ... [LABELS ...] [RANKS n] [TIMEOUT s]
#               [TORCH] [WAITS] [OWN_FLAGS] [SOAK])
#   SOAK: the cases named DISABLED_ run as another test, more_NAME with the label soak.
#   LABELS: unit where none is given; `long` beside it keeps a test out of `make check`.
#   One GoogleTest binary; with TORCH its main is tests/torch_main.cpp. With RANKS it runs
#   under mpiexec with that many ranks (its main comes from tests/dist); a wrong count fails
#   loudly there. OWN_FLAGS: see longhaul_test_code.
function(longhaul_test name)
  cmake_parse_arguments(ARG "TORCH;WAITS;OWN_FLAGS;SOAK" "TIMEOUT" "SOURCES;DEPS;LABELS;PRIVATE" ${ARGN})
  if(NOT LONGHAUL_TESTS)
    return()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(LONGHAUL_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  longhaul_join(${name})
  set(kind)
  foreach(one IN ITEMS TORCH OWN_FLAGS)
    if(ARG_${one})
      list(APPEND kind ${one})
    endif()
  endforeach()
  longhaul_test_code(${name} ${kind})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PRIVATE longhaul::${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE} GTest::gtest)
  if(ARG_TORCH)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/torch_main.cpp)
    target_link_libraries(${name} PRIVATE longhaul_fake_ranks longhaul::tensor)
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1
           WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  set(names ${name})
  if(ARG_SOAK)
    add_test(NAME more_${name} COMMAND ${name} --gtest_brief=1 --gtest_also_run_disabled_tests
             --gtest_filter=*DISABLED_* WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties(more_${name} PROPERTIES LABELS soak TIMEOUT 1800)
    list(APPEND names more_${name})
  endif()
  longhaul_places(ARG_WAITS ${names})
  set_tests_properties(${names} PROPERTIES
                       ENVIRONMENT "LONGHAUL_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()

# longhaul_never_links(target names...)
#   Ends the configuration where one of these libraries of ours stands behind the target.
function(longhaul_never_links target)
  set(seen)
  set(todo ${target})
  while(todo)
    list(POP_FRONT todo one)
    string(REGEX REPLACE "^longhaul::" "longhaul_" one "${one}")
    if(one IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${one})
    if(NOT TARGET ${one})
      continue()
    endif()
    foreach(property IN ITEMS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(linked ${one} ${property})
      if(linked)
        string(REGEX REPLACE "\\$<LINK_ONLY:([^>]*)>" "\\1" linked "${linked}")
        list(APPEND todo ${linked})
      endif()
    endforeach()
  endwhile()
  foreach(name IN LISTS ARGN)
    if("longhaul_${name}" IN_LIST seen)
      message(FATAL_ERROR "${target} links longhaul_${name}")
    endif()
  endforeach()
endfunction()

set(LONGHAUL_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    -Wold-style-cast -Woverloaded-virtual)
# With GCC, the compiler of what is shipped. Clang serves the fuzz targets and clang-tidy,
# and warns of libstdc++'s own lines where our code instantiates them.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND LONGHAUL_WARNINGS -Werror)
  # GCC 12 reports these inside libstdc++ itself (PR 105329, 105651).
  list(APPEND LONGHAUL_WARNINGS -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(LONGHAUL_SANITIZE)
  # With the sanitizers' extra code GCC 12 sees uninitialised values inside libstdc++.
  list(APPEND LONGHAUL_WARNINGS
       $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -Wno-uninitialized)
endif()
