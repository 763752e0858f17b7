#include "longhaul/system/isolate_child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace longhaul::system {

int isolate_child(int fd) {
  constexpr int kKept = 3;
  if (fd != kKept) ::dup2(fd, kKept);
  ::close_range(kKept + 1, ~0U, 0);
  const int null = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard < kKept; ++standard) ::dup2(null, standard);
  if (null > kKept) ::close(null);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return kKept;
}

}  // namespace longhaul::system
