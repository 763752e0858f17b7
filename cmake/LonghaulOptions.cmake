# Switches of the build, and what every target of ours is compiled with.
option(LONGHAUL_TORCH "Build the folders that need LibTorch" ON)
option(LONGHAUL_TESTS "Build the tests" ON)
option(LONGHAUL_CUDA "Build the CUDA kernels against a CUDA LibTorch" OFF)
option(LONGHAUL_MPI "Build the MPI backend" ON)
option(LONGHAUL_PCH "Precompile the headers of libraries" ON)
option(LONGHAUL_JOIN "Compile several files of a target as one unit; OFF for tools that look at each" ON)
option(LONGHAUL_FUZZ "Build the libFuzzer targets (clang)" OFF)
option(LONGHAUL_HARDEN "Guard stacks and check what libc's functions write" ON)
set(LONGHAUL_SANITIZE "" CACHE STRING "address | undefined | thread, for our own targets")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Most files call others and wait for disks: half of a first build was spent on optimising
# them. Targets that loop over data say HOT and get -O3.
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# The loader binds everything at the start and then makes its tables read-only.
add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)

# A sanitizer checks the same and more.
if(LONGHAUL_HARDEN AND NOT LONGHAUL_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>
                      $<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE>
                      $<$<COMPILE_LANGUAGE:CXX>:-D_FORTIFY_SOURCE=2>)
  set(LONGHAUL_GUARDED --guarded)  # what check_elf.py is told
endif()

# The baseline of what is shipped; faster instruction sets are chosen at run
# time, per kernel file.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  add_compile_options(-march=x86-64-v3)
endif()

if(LONGHAUL_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(LONGHAUL_SANITIZE)
  add_compile_options(-fsanitize=${LONGHAUL_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LONGHAUL_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Functions of a library that is loaded at run time have handles of its own types.
    add_compile_options(-fno-sanitize=function)
  endif()
endif()
