# The CUDA side: a CUDA LibTorch, the static CUDA runtime, and nvcc for kernels on raw
# pointers. Nothing here needs a GPU; what links so is not run on a machine without one.
find_program(LONGHAUL_NVCC nvcc
  HINTS ${PROJECT_SOURCE_DIR}/.cache/cuda/toolkit-13.0/bin /usr/local/cuda/bin)
if(NOT LONGHAUL_NVCC)
  message(FATAL_ERROR "no nvcc found; run 'make deps-cuda' first")
endif()
# nvcc may be a script or a link elsewhere: ask it where its toolkit lies.
execute_process(COMMAND ${LONGHAUL_NVCC} --dryrun -x cu -c /dev/null -o /dev/null
                ERROR_VARIABLE dryrun OUTPUT_QUIET)
string(REGEX MATCH "TOP=([^\n]*)" top_line "${dryrun}")
get_filename_component(LONGHAUL_CUDA_HOME "${CMAKE_MATCH_1}" REALPATH)
set(LONGHAUL_CUDA_ARCH "sm_80;sm_90a;sm_100" CACHE STRING
  "GPUs that the kernels are compiled for: A100 and its like, H100, B200")
set(LONGHAUL_CUDA_GENCODE)
foreach(arch IN LISTS LONGHAUL_CUDA_ARCH)
  string(REPLACE sm_ compute_ virtual ${arch})
  list(APPEND LONGHAUL_CUDA_GENCODE -gencode arch=${virtual},code=${arch})
endforeach()
# No contraction: the kernels wait for memory, and what the tests compile for the host has
# the same operations. Constexpr functions of the CPU's loops may be called. These two lists
# are read by tools/cuda_resources.py too.
set(LONGHAUL_NVCC_FLAGS -t 0 -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr)

find_library(LONGHAUL_CUDART cudart_static REQUIRED NO_CACHE
  HINTS ${LONGHAUL_CUDA_HOME}/lib64 ${LONGHAUL_CUDA_HOME}/lib
        ${LONGHAUL_CUDA_HOME}/targets/x86_64-linux/lib)
add_library(longhaul_cudart INTERFACE)
target_include_directories(longhaul_cudart SYSTEM INTERFACE ${LONGHAUL_CUDA_HOME}/include)
target_link_libraries(longhaul_cudart INTERFACE ${LONGHAUL_CUDART} Threads::Threads dl rt)

# longhaul_cuda_sources(target files...): compiles .cu files with nvcc into the target.
function(longhaul_cuda_sources target)
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME)
    set(input ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${LONGHAUL_NVCC} -c ${input} -o ${object} ${LONGHAUL_CUDA_GENCODE}
              ${LONGHAUL_NVCC_FLAGS} -I${PROJECT_SOURCE_DIR} -MD -MF ${object}.d
              -Werror all-warnings -Xcompiler -fPIC,-Wall,-Wextra,-Werror
      DEPENDS ${input} DEPFILE ${object}.d
      COMMENT "Compiling ${source} with nvcc" VERBATIM)
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  endforeach()
endfunction()

# NCCL: only its header; the library is the one that LibTorch loads, opened at run time.
find_path(LONGHAUL_NCCL_INCLUDE nccl.h NO_CACHE
  HINTS ${PROJECT_SOURCE_DIR}/.cache/cuda/nccl/include ${LONGHAUL_CUDA_HOME}/include)
if(NOT LONGHAUL_NCCL_INCLUDE)
  message(FATAL_ERROR "no nccl.h found; run 'make deps-cuda' first")
endif()
add_library(longhaul_nccl INTERFACE)
target_include_directories(longhaul_nccl SYSTEM INTERFACE ${LONGHAUL_NCCL_INCLUDE})
target_link_libraries(longhaul_nccl INTERFACE longhaul_cudart)
