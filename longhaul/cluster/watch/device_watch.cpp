#include "longhaul/cluster/watch/device_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "longhaul/base/process.h"
#include "longhaul/cluster/health/gpu_health.h"
#include "longhaul/system/isolate_child.h"
#include "longhaul/system/process_title.h"
#include "longhaul/system/signals.h"

namespace longhaul::cluster {
namespace {

constexpr double kFreshSeconds = 10.0;
constexpr size_t kMostBytes = size_t{1} << 16;
constexpr int kMaxDepth = 4;

/// Returns one line: a list of devices in JSON.
std::string line_of(const std::vector<GpuState>& gpus) {
  Json list = Json::array();
  for (size_t i = 0; i < gpus.size(); ++i) {
    run::RunStatus::Device device;
    device.name = fmt::format("{} {}", i, gpus[i].reachable ? gpus[i].name : "lost");
    device.memory_used_bytes = static_cast<int64_t>(gpus[i].memory_used_bytes);
    device.memory_total_bytes = static_cast<int64_t>(gpus[i].memory_total_bytes);
    device.busy = gpus[i].busy.value_or(-1.0);
    list.push_back(device.to_json());
  }
  return json_text(list) + "\n";
}

/// Runs the child until its parent is gone.
[[noreturn]] void tell_for_ever(int fd, const std::string& library) {
  system::set_process_title("longhaul devices");
  system::ignore_signals_until_exit();
  try {
    const auto use = GpuUse::open(library);
    while (use) {
      const std::string line = line_of(use->read());
      const ssize_t count = ::write(fd, line.data(), line.size());
      // While the parent stands still, lines or parts of lines are lost. They would be
      // old by the time it reads on.
      if (count < 0 && errno != EAGAIN && errno != EINTR) break;
      const timespec pause{1, 0};
      ::nanosleep(&pause, nullptr);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the parent sees the end
  }
  ::_exit(0);
}

}  // namespace

DeviceWatch::DeviceWatch(const std::string& library) {
  int ends[2];
  if (library.empty() || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  from_child_ = Descriptor(ends[0]);
  const Descriptor to_parent(ends[1]);
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  tell_for_ever(system::isolate_child(ends[1]), library);
}

DeviceWatch::~DeviceWatch() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  // A child that waits in the driver is left behind.
  for (int i = 0; i < 20 && child_ > 0; ++i) {
    reap();
    const timespec pause{0, 1'000'000};
    if (child_ > 0) ::nanosleep(&pause, nullptr);
  }
}

void DeviceWatch::reap() {
  if (child_ <= 0) return;
  const pid_t got = ::waitpid(child_, nullptr, WNOHANG);
  if (got == child_ || (got < 0 && errno != EINTR)) child_ = -1;
}

std::vector<run::RunStatus::Device> DeviceWatch::look() {
  std::array<char, 4096> bytes{};
  while (from_child_.is_open()) {
    const ssize_t count = ::read(from_child_.get(), bytes.data(), bytes.size());
    if (count < 0) break;
    rest_.append(bytes.data(), static_cast<size_t>(count));
    for (size_t end = 0; (end = rest_.find('\n')) != std::string::npos;) {
      take_line(rest_.substr(0, end));
      rest_.erase(0, end + 1);
    }
    if (count == 0 || rest_.size() > kMostBytes) from_child_.reset();
  }
  if (!from_child_.is_open()) {
    devices_.clear();
    reap();
  }
  if (unix_time() - heard_ > kFreshSeconds) devices_.clear();
  return devices_;
}

void DeviceWatch::take_line(const std::string& line) {
  try {
    devices_.clear();
    for (const Json& device : parse_json(line, "devices", kMaxDepth)) {
      devices_.push_back(run::RunStatus::Device::from_json(device));
    }
    heard_ = unix_time();
  } catch (const std::exception&) {
    devices_.clear();
  }
}

}  // namespace longhaul::cluster
