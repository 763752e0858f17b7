# A C library of the system as an interface target. The static libraries are taken where
# there are any, so that an installed tree and the nodes need none of their own.
include_guard(GLOBAL)

# longhaul_system_library(NAME HEADER file PACKAGES text LIBRARIES lib...) makes the target
# longhaul_NAME. Libraries are given without "lib", each before those that it needs.
function(longhaul_system_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;PACKAGES" "LIBRARIES")
  string(TOUPPER ${name} upper)
  find_path(LONGHAUL_${upper}_INCLUDE ${arg_HEADER})
  set(found ${LONGHAUL_${upper}_INCLUDE})
  set(files)
  foreach(library ${arg_LIBRARIES})
    string(MAKE_C_IDENTIFIER LONGHAUL_${upper}_LIBRARY_${library} variable)
    find_library(${variable} NAMES lib${library}.a ${library})
    if(NOT ${variable})
      set(found)
    endif()
    list(APPEND files ${${variable}})
  endforeach()
  if(NOT found)
    message(FATAL_ERROR "no ${name} (${arg_PACKAGES}); run 'make deps' first")
  endif()
  add_library(longhaul_${name} INTERFACE)
  target_include_directories(longhaul_${name} SYSTEM INTERFACE ${LONGHAUL_${upper}_INCLUDE})
  target_link_libraries(longhaul_${name} INTERFACE ${files})
endfunction()
