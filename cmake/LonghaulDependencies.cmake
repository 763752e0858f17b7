# Everything from outside, each as one target; all headers are SYSTEM.
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
if(LONGHAUL_TORCH)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  # Only the flag: a full path to the compiler's libgomp would contend with LibTorch's
  # copy, which is the one that gets loaded.
  set_target_properties(OpenMP::OpenMP_CXX PROPERTIES
    INTERFACE_LINK_LIBRARIES "" INTERFACE_LINK_OPTIONS -fopenmp)
endif()
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
# A precompiled header is for one level of optimisation. What a header leaves to the end of a
# unit is compiled in every unit again, so the headers that few need do not stand here.
set(plain_headers <algorithm> <chrono> <filesystem> <fmt/format.h> <functional> <map> <memory>
  <nlohmann/json.hpp> <optional> <string> <thread> <variant> <vector>)
set(torch_headers <string> <vector> <memory> <functional> <optional> <map> <fmt/format.h>
  <ATen/core/Tensor.h> <ATen/Functions.h>)
longhaul_precompiled(plain ${plain_headers})
longhaul_precompiled(hot ${plain_headers})
if(LONGHAUL_PCH)
  target_compile_options(longhaul_hot_pch PRIVATE $<$<CONFIG:Release>:-O3>)
endif()
if(LONGHAUL_TESTS)
  find_package(GTest REQUIRED)
  longhaul_precompiled(test ${plain_headers} <fstream> <sstream> <gtest/gtest.h>)
  if(LONGHAUL_PCH)
    target_link_libraries(longhaul_test_pch PRIVATE GTest::gtest)
  endif()
endif()

find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(longhaul_xxhash INTERFACE)
target_link_libraries(longhaul_xxhash INTERFACE ${XXHASH_LIBRARY})

# The virtual environment that `make deps` makes: LibTorch and Arrow come from
# its wheels. It is needed to build, never to run.
set(LONGHAUL_VENV ${PROJECT_SOURCE_DIR}/.venv CACHE PATH "virtual environment of make deps")
set(LONGHAUL_PYTHON ${LONGHAUL_VENV}/bin/python3)
file(GLOB LONGHAUL_SITE_PACKAGES ${LONGHAUL_VENV}/lib/python3.*/site-packages)

# LibTorch as one interface target. Its own CMake package is not used: it
# searches for CUDA and alters the architectures of the caller.
set(LONGHAUL_TORCH_ROOT ${LONGHAUL_SITE_PACKAGES}/torch CACHE PATH
    "directory that holds LibTorch's include/ and lib/")
if(LONGHAUL_TORCH)
  if(NOT EXISTS ${LONGHAUL_TORCH_ROOT}/include/ATen/core/Tensor.h)
    message(FATAL_ERROR "no LibTorch in '${LONGHAUL_TORCH_ROOT}'; run 'make deps' first")
  endif()
  add_library(longhaul_torch INTERFACE)
  # Our fmt before the copy that LibTorch carries: a system folder keeps its place at the
  # end whatever -isystem says, so it gets a second name.
  find_path(LONGHAUL_FMT_INCLUDE fmt/core.h NO_CACHE REQUIRED)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/first)
  file(CREATE_LINK ${LONGHAUL_FMT_INCLUDE}/fmt ${PROJECT_BINARY_DIR}/first/fmt SYMBOLIC)
  target_include_directories(longhaul_torch SYSTEM INTERFACE
    ${PROJECT_BINARY_DIR}/first
    ${LONGHAUL_TORCH_ROOT}/include
    ${LONGHAUL_TORCH_ROOT}/include/torch/csrc/api/include)
  target_link_directories(longhaul_torch INTERFACE ${LONGHAUL_TORCH_ROOT}/lib)
  # One OpenMP flag for all units, as the precompiled header needs it.
  target_link_libraries(longhaul_torch INTERFACE OpenMP::OpenMP_CXX)
  target_link_libraries(longhaul_torch INTERFACE torch torch_cpu c10)
  if(LONGHAUL_CUDA)
    include(LonghaulCuda)
  endif()
  # The standard library before LibTorch, whose libraries export copies of parts of it:
  # they are found in this order, and std::filesystem of the CUDA form crashes.
  target_link_options(longhaul_torch INTERFACE
    "SHELL:-Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state"
    -Wl,-rpath,${LONGHAUL_TORCH_ROOT}/lib -Wl,--allow-shlib-undefined)

  longhaul_precompiled(torch ${torch_headers})
  if(LONGHAUL_PCH)
    target_link_libraries(longhaul_torch_pch PRIVATE longhaul_torch)
  endif()
  if(LONGHAUL_TESTS)
    longhaul_precompiled(torch_test ${torch_headers} <gtest/gtest.h>)
    if(LONGHAUL_PCH)
      longhaul_unoptimised(longhaul_torch_test_pch)
      target_link_libraries(longhaul_torch_test_pch PRIVATE longhaul_torch GTest::gtest)
    endif()
  endif()
endif()

if(LONGHAUL_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  # mpi.h would otherwise pull in the old C++ bindings, which nothing links.
  target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX=1)
endif()
