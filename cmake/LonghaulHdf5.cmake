# libhdf5, for BERT shards. The static library where there is one: the shared one of Debian
# brings libcurl and with it a way into the network that nothing here needs. Without
# libhdf5 the target longhaul_hdf5 does not exist and such files are refused with a clear
# message.
include_guard(GLOBAL)
find_path(LONGHAUL_HDF5_INCLUDE hdf5.h PATH_SUFFIXES hdf5/serial)
find_library(LONGHAUL_HDF5_LIBRARY NAMES libhdf5_serial.a libhdf5.a hdf5_serial hdf5)
if(LONGHAUL_HDF5_INCLUDE AND LONGHAUL_HDF5_LIBRARY)
  add_library(longhaul_hdf5 INTERFACE)
  target_include_directories(longhaul_hdf5 SYSTEM INTERFACE ${LONGHAUL_HDF5_INCLUDE})
  # Calls keep the form of 1.10 in later libraries.
  target_compile_definitions(longhaul_hdf5 INTERFACE H5_USE_110_API)
  target_link_libraries(longhaul_hdf5 INTERFACE ${LONGHAUL_HDF5_LIBRARY})
  if(LONGHAUL_HDF5_LIBRARY MATCHES "\\.a$")
    # The filter szip, which is linked in and never used.
    foreach(name IN ITEMS sz aec)
      find_library(LONGHAUL_HDF5_${name} NAMES lib${name}.a ${name})
      if(LONGHAUL_HDF5_${name})
        target_link_libraries(longhaul_hdf5 INTERFACE ${LONGHAUL_HDF5_${name}})
      endif()
    endforeach()
    target_link_libraries(longhaul_hdf5 INTERFACE ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS} m)
  endif()
endif()
