# longhaul::build_info: version, commit and compiler. A target of its own, so that a new
# commit relinks only what prints it.
set(LONGHAUL_COMMIT "" CACHE STRING "commit to report; empty asks git at each build")
set(commit_header ${PROJECT_BINARY_DIR}/generated/longhaul_commit.h)
add_custom_target(longhaul_commit
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${commit_header}
          -DCOMMIT=${LONGHAUL_COMMIT} -P ${PROJECT_SOURCE_DIR}/cmake/write_commit.cmake
  BYPRODUCTS ${commit_header} VERBATIM)
add_library(longhaul_build_info STATIC ${PROJECT_SOURCE_DIR}/longhaul/base/build_info.cpp)
add_library(longhaul::build_info ALIAS longhaul_build_info)
add_dependencies(longhaul_build_info longhaul_commit)
target_include_directories(longhaul_build_info PUBLIC ${PROJECT_SOURCE_DIR}
                           PRIVATE ${PROJECT_BINARY_DIR}/generated)
target_compile_options(longhaul_build_info PRIVATE ${LONGHAUL_WARNINGS})
target_compile_definitions(longhaul_build_info PRIVATE
  LONGHAUL_VERSION="${PROJECT_VERSION}"
  LONGHAUL_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
  LONGHAUL_BUILD_TYPE="${CMAKE_BUILD_TYPE}")
