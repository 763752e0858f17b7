# Arrow C++ from the pyarrow wheel of the virtual environment: headers and libraries, for
# reading Parquet, Arrow, and the directories that Hugging Face datasets writes. Without the
# wheel the target longhaul_arrow does not exist and such files are refused with a clear
# message.
include_guard(GLOBAL)
set(LONGHAUL_ARROW_ROOT ${LONGHAUL_SITE_PACKAGES}/pyarrow CACHE PATH
    "directory that holds Arrow's include/, libarrow.so and libparquet.so")
file(GLOB LONGHAUL_ARROW_LIBRARY ${LONGHAUL_ARROW_ROOT}/libarrow.so.*)
file(GLOB LONGHAUL_PARQUET_LIBRARY ${LONGHAUL_ARROW_ROOT}/libparquet.so.*)
if(EXISTS ${LONGHAUL_ARROW_ROOT}/include/arrow/api.h AND LONGHAUL_ARROW_LIBRARY
   AND LONGHAUL_PARQUET_LIBRARY)
  list(GET LONGHAUL_ARROW_LIBRARY 0 LONGHAUL_ARROW_LIBRARY)
  list(GET LONGHAUL_PARQUET_LIBRARY 0 LONGHAUL_PARQUET_LIBRARY)
  add_library(longhaul_arrow INTERFACE)
  target_include_directories(longhaul_arrow SYSTEM INTERFACE ${LONGHAUL_ARROW_ROOT}/include)
  target_link_libraries(longhaul_arrow INTERFACE
    ${LONGHAUL_PARQUET_LIBRARY} ${LONGHAUL_ARROW_LIBRARY})
  # libparquet exports a simdjson of its own, of another version than the system's. What
  # comes first in a program's list of libraries serves our calls: with libparquet before it
  # they crash. Libraries stand in no order of ours, options stand before all of them.
  target_link_options(longhaul_arrow INTERFACE
    "LINKER:--push-state,--no-as-needed,-lsimdjson,--pop-state")
  target_link_options(longhaul_arrow INTERFACE -Wl,-rpath,${LONGHAUL_ARROW_ROOT})
endif()

# Arrow's S3 part, for the program longhaul-objects; without it there is no such program, and
# addresses of object stores are refused.
file(GLOB LONGHAUL_ARROW_S3_LIBRARY ${LONGHAUL_ARROW_ROOT}/libarrow_s3.so.*)
if(TARGET longhaul_arrow AND LONGHAUL_ARROW_S3_LIBRARY)
  list(GET LONGHAUL_ARROW_S3_LIBRARY 0 LONGHAUL_ARROW_S3_LIBRARY)
  add_library(longhaul_arrow_s3 INTERFACE)
  target_include_directories(longhaul_arrow_s3 SYSTEM INTERFACE ${LONGHAUL_ARROW_ROOT}/include)
  target_link_libraries(longhaul_arrow_s3 INTERFACE ${LONGHAUL_ARROW_S3_LIBRARY} ${LONGHAUL_ARROW_LIBRARY})
  target_link_options(longhaul_arrow_s3 INTERFACE -Wl,-rpath,${LONGHAUL_ARROW_ROOT})
endif()
