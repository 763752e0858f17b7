# cmark-gfm, GitHub's parser of Markdown, for the pages of `longhaul docs`. The static
# libraries where there are any, so that no machine needs a library of its own.
include_guard(GLOBAL)
find_path(LONGHAUL_CMARK_INCLUDE cmark-gfm-core-extensions.h)
find_library(LONGHAUL_CMARK_LIBRARY NAMES libcmark-gfm.a cmark-gfm)
find_library(LONGHAUL_CMARK_TABLES_LIBRARY NAMES libcmark-gfm-extensions.a cmark-gfm-extensions)
if(NOT LONGHAUL_CMARK_INCLUDE OR NOT LONGHAUL_CMARK_LIBRARY OR NOT LONGHAUL_CMARK_TABLES_LIBRARY)
  message(FATAL_ERROR "no cmark-gfm (libcmark-gfm-dev, libcmark-gfm-extensions-dev); run 'make deps' first")
endif()
add_library(longhaul_cmark INTERFACE)
target_include_directories(longhaul_cmark SYSTEM INTERFACE ${LONGHAUL_CMARK_INCLUDE})
target_link_libraries(longhaul_cmark INTERFACE ${LONGHAUL_CMARK_TABLES_LIBRARY} ${LONGHAUL_CMARK_LIBRARY})
