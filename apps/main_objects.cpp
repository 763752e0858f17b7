#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "longhaul/objects/protocol.h"
#include "longhaul/objects/service/service.h"
#include "longhaul/system/standard_streams.h"

namespace {

constexpr int kLowest = 19;  // the lowest priority of setpriority()

}  // namespace

// The process that reads and writes objects for longhaul. longhaul starts it when an
// address of an object is first used, and sends it requests over a socket.

int main(int count, char** arguments) {
  longhaul::system::guard_standard_streams();
  if (::isatty(longhaul::objects::kServiceSocket) != 0 ||
      ::lseek(longhaul::objects::kServiceSocket, 0, SEEK_CUR) != -1 || errno != ESPIPE) {
    std::fputs("longhaul-objects: longhaul starts this program where it needs it\n",
               stderr);
    return 64;
  }
  if (count > 1 && std::strcmp(arguments[1], longhaul::objects::kLowPriority) == 0) {
    ::setpriority(PRIO_PROCESS, 0, kLowest);
  }
  // Core files are turned off, since this process has credentials in its memory and
  // others may read core files.
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // This process closes the descriptors that it has inherited from the starting process.
  ::close_range(longhaul::objects::kServiceMemory + 1, ~0U, 0);
  return longhaul::objects::serve_objects(longhaul::objects::kServiceSocket,
                                          longhaul::objects::kServiceMemory);
}
