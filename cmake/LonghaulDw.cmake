# libdw of elfutils, for stack traces of other processes. Shared: it is under the LGPL.
# Without it the target longhaul_dw does not exist and only what /proc says is shown.
include_guard(GLOBAL)
find_path(LONGHAUL_DW_INCLUDE elfutils/libdwfl.h)
find_library(LONGHAUL_DW_LIBRARY dw)
if(LONGHAUL_DW_INCLUDE AND LONGHAUL_DW_LIBRARY)
  add_library(longhaul_dw INTERFACE)
  target_include_directories(longhaul_dw SYSTEM INTERFACE ${LONGHAUL_DW_INCLUDE})
  target_link_libraries(longhaul_dw INTERFACE ${LONGHAUL_DW_LIBRARY})
endif()
