# `cmake --install` makes a relocatable tree: bin/longhaul finds every library in
# ../lib, and nothing in it points at the source tree, the virtual environment or Python.
if(NOT TARGET longhaul)
  return()
endif()
find_program(PATCHELF_PROGRAM patchelf)
# As files: of a target that it installs, CMake ends the build's RUNPATH with a colon, and the
# loader takes an empty entry for the working directory.
set(LONGHAUL_PROGRAMS longhaul longhaul-serve longhaul-torch)
if(TARGET longhaul_objects_program)
  list(APPEND LONGHAUL_PROGRAMS longhaul-objects)
endif()
if(TARGET longhaul_neuron)  # the program looks for it beside itself
  list(APPEND LONGHAUL_PROGRAMS liblonghaul_neuron.so)
endif()
foreach(name IN LISTS LONGHAUL_PROGRAMS)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/bin/${name} DESTINATION bin)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/recipes/ DESTINATION share/longhaul/recipes
        FILES_MATCHING PATTERN "*.toml" PATTERN "config.json")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/hardware/ DESTINATION share/longhaul/hardware FILES_MATCHING PATTERN "*.toml")
# The pages of `longhaul docs`.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION share/longhaul FILES_MATCHING PATTERN "*.md")
file(GLOB pages ${PROJECT_SOURCE_DIR}/*.md)
install(FILES ${pages} DESTINATION share/longhaul)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE
        DESTINATION share/longhaul)

# Where the build found its libraries; the installed program must not look there.
set(bundle_search ${LONGHAUL_TORCH_ROOT}/lib)
file(GLOB arrow_directory ${LONGHAUL_SITE_PACKAGES}/pyarrow)
list(APPEND bundle_search ${arrow_directory})
configure_file(${PROJECT_SOURCE_DIR}/cmake/bundle_libraries.cmake.in
               ${PROJECT_BINARY_DIR}/bundle_libraries.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/bundle_libraries.cmake)
