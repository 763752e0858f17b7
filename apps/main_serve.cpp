#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "longhaul/serve/protocol.h"
#include "longhaul/serve/service/http_service.h"
#include "longhaul/system/standard_streams.h"

// The process that speaks HTTP for `longhaul serve`, whose rank 0 starts it.

int main() {
  longhaul::system::guard_standard_streams();
  constexpr int kSocket = longhaul::serve::kServeSocket;
  if (::isatty(kSocket) != 0 || ::lseek(kSocket, 0, SEEK_CUR) != -1 || errno != ESPIPE) {
    std::fputs("longhaul-serve: longhaul serve starts this program where it needs it\n",
               stderr);
    return 64;
  }
  // Each connection is an open file.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  // Core files are turned off, since this process has the token in its memory.
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // This process closes the descriptors that it has inherited from the starting process.
  ::close_range(kSocket + 1, ~0U, 0);
  return longhaul::serve::serve_http(kSocket);
}
