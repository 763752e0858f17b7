# The engine of chat templates: files of llama.cpp that tools/deps.sh fetches, with
# tools/jinja.patch, as a static library. And cpp-httplib, which comes with them; the patch has a
# server close a connection whose request, head and body, has not come within a time.
include_guard(GLOBAL)
# The real path: a link would be copied as a link, and what it leads to be patched.
get_filename_component(fetched ${PROJECT_SOURCE_DIR}/.cache/jinja REALPATH)
set(patched ${PROJECT_BINARY_DIR}/jinja-engine)
set(patch ${PROJECT_SOURCE_DIR}/tools/jinja.patch)
if(NOT EXISTS ${fetched}/stamp)
  message(FATAL_ERROR "no template engine in '${fetched}'; run 'make deps' first")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${patch} ${fetched}/stamp)
find_program(LONGHAUL_PATCH patch REQUIRED)

# Files that are written again are compiled again.
file(READ ${fetched}/stamp wanted)
file(SHA256 ${patch} patch_hash)
string(APPEND wanted ${patch_hash})
set(found)
if(EXISTS ${patched}/stamp)
  file(READ ${patched}/stamp found)
endif()
if(NOT found STREQUAL wanted)
  file(REMOVE_RECURSE ${patched})
  file(COPY ${fetched}/ DESTINATION ${patched} PATTERN stamp EXCLUDE PATTERN templates EXCLUDE)
  execute_process(COMMAND ${LONGHAUL_PATCH} --silent --strip=1 --input=${patch}
    WORKING_DIRECTORY ${patched} COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${patched}/stamp "${wanted}")
endif()

add_library(longhaul_jinja STATIC ${patched}/unicode.cpp ${patched}/jinja/lexer.cpp
  ${patched}/jinja/parser.cpp ${patched}/jinja/runtime.cpp ${patched}/jinja/string.cpp
  ${patched}/jinja/value.cpp)
target_include_directories(longhaul_jinja SYSTEM INTERFACE ${patched})
target_include_directories(longhaul_jinja PRIVATE ${patched})
target_compile_options(longhaul_jinja PRIVATE -w $<$<CONFIG:Release>:-O2>)

# Without TLS, and without libraries that unpack what a client sends.
add_library(longhaul_httplib STATIC ${patched}/cpp-httplib/httplib.cpp)
target_include_directories(longhaul_httplib SYSTEM INTERFACE ${patched})
target_compile_options(longhaul_httplib PRIVATE -w)
target_compile_definitions(longhaul_httplib PUBLIC CPPHTTPLIB_LISTEN_BACKLOG=1024
  CPPHTTPLIB_TCP_NODELAY=true LONGHAUL_REQUEST_SECONDS=10)
find_package(Threads REQUIRED)
target_link_libraries(longhaul_httplib PUBLIC Threads::Threads)
