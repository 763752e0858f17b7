# libsodium, for the control channel of a job. The static library where there is one, so
# that nodes need none of their own.
include_guard(GLOBAL)
find_path(LONGHAUL_SODIUM_INCLUDE sodium.h)
find_library(LONGHAUL_SODIUM_LIBRARY NAMES libsodium.a sodium)
if(NOT LONGHAUL_SODIUM_INCLUDE OR NOT LONGHAUL_SODIUM_LIBRARY)
  message(FATAL_ERROR "no libsodium (libsodium-dev); run 'make deps' first")
endif()
add_library(longhaul_sodium INTERFACE)
target_include_directories(longhaul_sodium SYSTEM INTERFACE ${LONGHAUL_SODIUM_INCLUDE})
target_link_libraries(longhaul_sodium INTERFACE ${LONGHAUL_SODIUM_LIBRARY})
