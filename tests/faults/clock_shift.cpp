// A library for LD_PRELOAD that gives a program a wrong wall clock: off by the seconds in
// the file that LONGHAUL_CLOCK_SHIFT names. Other clocks stay right.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace {

time_t shift() {
  const char* path = std::getenv("LONGHAUL_CLOCK_SHIFT");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[32] = {};
  const ssize_t size = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  return size > 0 ? static_cast<time_t>(std::atoll(text)) : 0;
}

int real_clock(clockid_t clock, timespec* now) {
  static const auto next = reinterpret_cast<int (*)(clockid_t, timespec*)>(
      ::dlsym(RTLD_NEXT, "clock_gettime"));
  return next(clock, now);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) {
  const int result = real_clock(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += shift();
  return result;
}

int gettimeofday(timeval* now, void*) {
  timespec exact{};
  const int result = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return result;
}

time_t time(time_t* to) {
  timespec exact{};
  clock_gettime(CLOCK_REALTIME, &exact);
  if (to != nullptr) *to = exact.tv_sec;
  return exact.tv_sec;
}
}
