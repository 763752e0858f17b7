#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/accelerator/loaded.h"
#include "tests/accelerator/ranks.h"

// Tests ranks that are processes. The other rank is this program again, with one test.

extern char** environ;

namespace longhaul::softdev_test {
namespace {

constexpr const char* kId = "SOFTDEV_TEST_ID";
constexpr const char* kTask = "SOFTDEV_TEST_TASK";

/// Starts rank 1 of 2 in a process of its own.
pid_t start_other(const comm::DeviceApi::UniqueId& id, const char* task) {
  ::setenv(kId, id.data(), 1);
  ::setenv(kTask, task, 1);
  std::string self = "/proc/self/exe";
  std::string filter = "--gtest_filter=Processes.DISABLED_TheOther";
  std::string also = "--gtest_also_run_disabled_tests";
  std::vector<char*> arguments{self.data(), filter.data(), also.data(), nullptr};
  pid_t pid = 0;
  EXPECT_EQ(
      ::posix_spawn(&pid, self.c_str(), nullptr, nullptr, arguments.data(), environ), 0);
  return pid;
}

/// Adds up 1000 values of rank + 1 over both ranks, or ends the process after it has
/// joined. Returns what the group says.
std::string sum_up(const comm::DeviceApi::UniqueId& id, int rank, at::Tensor& x) {
  const auto api = collectives();
  comm::DeviceApi::Comm group = nullptr;
  comm::DeviceApi::Stream stream = nullptr;
  comm::DeviceApi::Event event = nullptr;
  api->set_device(rank);
  api->create_stream(stream);
  api->create_event(event);
  api->init_rank(group, {.ranks = 2, .rank = rank, .ids = {id}});
  if (rank == 1 && std::getenv(kTask) == std::string("dies")) std::_Exit(0);
  x = at::full({1000}, rank + 1.0, device(rank));
  api->record(event, nullptr);
  api->stream_waits(stream, event);
  api->all_reduce(x.data_ptr(), x.data_ptr(), 1000, format::DType::F32,
                  comm::ReduceOp::Sum, group, stream);
  api->record(event, stream);
  for (int i = 0; i < 2000; ++i) {
    bool done = false;
    int state = 0;
    api->is_done(event, done);
    if (done) return "done";
    api->async_error(group, state);
    if (state != 0) return api->error_text(state, group);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return "nothing said";
}

comm::DeviceApi::UniqueId new_id() {
  comm::DeviceApi::UniqueId id{};
  collectives()->unique_id(id);
  return id;
}

TEST(Processes, DISABLED_TheOther) {
  comm::DeviceApi::UniqueId id{};
  std::strncpy(id.data(), std::getenv(kId), id.size() - 1);
  at::Tensor x;
  ASSERT_EQ(sum_up(id, 1, x), "done");
  EXPECT_TRUE(at::equal(x.cpu(), at::full({1000}, 3.0)));
}

TEST(Processes, WorkTogether) {
  const auto id = new_id();
  const pid_t other = start_other(id, "sums");
  at::Tensor x;
  EXPECT_EQ(sum_up(id, 0, x), "done");
  EXPECT_TRUE(at::equal(x.cpu(), at::full({1000}, 3.0)));
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

TEST(Processes, ThatAreGoneAreNamed) {
  const auto id = new_id();
  const pid_t other = start_other(id, "dies");
  // The operation never ends, so that its memory is never used for anything else.
  static auto* const x = new at::Tensor;
  const std::string told = sum_up(id, 0, *x);
  EXPECT_NE(told.find("rank 1 (process " + std::to_string(other) + ") is gone"),
            std::string::npos)
      << told;
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
}

}  // namespace
}  // namespace longhaul::softdev_test
