#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>

#include "longhaul/device/device.h"
#include "longhaul/device/run_ahead.h"
#include "tests/accelerator/loaded.h"
#include "tests/accelerator/ranks.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/scratch_directory.h"

// Plants mistakes that a GPU would punish, and checks that the device names each of them.

namespace longhaul::softdev_test {
namespace {

c10::impl::VirtualGuardImpl guard() {
  return c10::impl::VirtualGuardImpl(device().type());
}

/// Waits for everything that earlier tests have left behind.
struct Settled : testing::Test {
  Settled() { guard().synchronizeDevice(0); }
};
struct Race : Settled {};
struct PinnedMemory : Settled {};
struct Synchronizations : Settled {};
struct Refusals : Settled {};

c10::Stream other_stream() { return guard().getNewStream(device()); }

at::Tensor floats(const std::vector<float>& values) {
  return at::tensor(values).to(device());
}

void expect_told(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
  }
}

/// Writes on the current stream and reads on another, with or without an event between.
void write_here_read_there(bool with_event) {
  const at::Tensor x = floats({1, 2, 3});
  const c10::Stream there = other_stream();
  x.mul_(2);
  c10::Event written(device().type());
  written.record(guard().getStream(device()));
  if (with_event) written.block(there);
  const c10::StreamGuard on(there);
  const at::Tensor y = x + 1;
  guard().synchronizeStream(there);
  EXPECT_TRUE(at::equal(y.cpu(), at::tensor({3.0F, 5.0F, 7.0F})));
}

TEST_F(Race, AnEventThatIsWaitedForOrdersTwoStreams) {
  EXPECT_EQ(failure_of([] { write_here_read_there(true); }), "nothing thrown");
}

TEST_F(Race, WithoutTheWaitBothUsesAreNamed) {
  const int64_t before = counted("races");
  expect_told(failure_of([] { write_here_read_there(false); }),
              {"RACE: aten::add", "reads what aten::mul (operation ", "writes",
               "of stream 0 of device 0", "bytes 0 to 12 of a block"});
  EXPECT_EQ(counted("races"), before + 1);
}

TEST_F(Race, PiecesOfOneBufferAreApart) {
  const at::Tensor x = at::zeros({64}, device());
  guard().synchronizeStream(guard().getStream(device()));
  x.narrow(0, 0, 32).fill_(1);
  const c10::StreamGuard on(other_stream());
  x.narrow(0, 32, 32).fill_(2);
  expect_told(failure_of([&] { x.narrow(0, 31, 2).fill_(3); }),
              {"RACE: aten::fill_", "writes what aten::fill_", "bytes 124 to 132"});
}

TEST_F(Race, AWaitOfTheHostOrdersWhatItStartsThen) {
  const at::Tensor x = at::zeros({64}, device());
  x.fill_(1);
  guard().synchronizeStream(guard().getStream(device()));
  const c10::StreamGuard on(other_stream());
  EXPECT_EQ(x.sum().item<float>(), 64);
}

/// Frees a buffer that another stream reads, and takes it again at once.
void reuse(bool record) {
  const c10::Stream there = other_stream();
  at::Tensor x = at::ones({5000}, device());
  void* const at = x.data_ptr();
  guard().synchronizeStream(guard().getStream(device()));
  {
    const c10::StreamGuard on(there);
    const at::Tensor sum = x.sum();
    if (record) x.record_stream(there);
  }
  x.reset();
  const at::Tensor y = at::empty({5000}, device());
  EXPECT_EQ(y.data_ptr(), at);
  y.fill_(2);
}

TEST_F(Race, ABufferThatIsReusedTooEarlyIsTold) {
  expect_told(failure_of([] { reuse(false); }),
              {"RACE: a buffer reused too early: aten::fill_", "aten::sum", "reads"});
}

TEST_F(Race, ARecordedStreamKeepsTheBuffer) {
  EXPECT_EQ(failure_of([] { reuse(true); }), "nothing thrown");
}

TEST(HostMemoryDeathTest, TheHostCannotReadTheDevicesMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read = [] {
    const at::Tensor x = at::ones({4}, device());
    std::exit(*static_cast<const volatile float*>(x.data_ptr()) == 1.0F ? 0 : 1);
  };
  EXPECT_EXIT(read(), testing::KilledBySignal(SIGSEGV),
              "STRAY: the host touches memory of device 0, byte ");
}

TEST_F(PinnedMemory, HoldsACopyOnceTheHostHasWaited) {
  const at::Tensor x = floats({1, 2, 3});
  const at::Tensor host = at::zeros({3}, at::TensorOptions().pinned_memory(true));
  host.copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(at::isnan(host).all().item<bool>());
  c10::Event copied(device().type());
  copied.record(guard().getStream(device()));
  EXPECT_TRUE(at::isnan(host).all().item<bool>());
  copied.synchronize();
  EXPECT_TRUE(at::equal(host, at::tensor({1.0F, 2.0F, 3.0F})));
}

TEST_F(PinnedMemory, ThatIsWrittenBeforeItsCopyIsOverIsTold) {
  const at::Tensor host = at::ones({3}).pin_memory();
  const at::Tensor x = host.to(device(), /*non_blocking=*/true);
  host.fill_(7);
  expect_told(failure_of([] { guard().synchronizeStream(guard().getStream(device())); }),
              {"RACE: the host wrote pinned memory", "12 bytes"});
}

TEST_F(PinnedMemory, GoesThereAndBackInTheOrderOfTheStream) {
  const at::Tensor x = floats({1, 2, 3});
  const at::Tensor host = at::zeros({3}, at::TensorOptions().pinned_memory(true));
  host.copy_(x, true);
  x.fill_(0);
  x.copy_(host, true);
  EXPECT_TRUE(at::equal(x.cpu(), at::tensor({1.0F, 2.0F, 3.0F})));
}

/// Returns the number of synchronisations that `call` takes.
template <typename Call>
int64_t waits_of(const Call& call) {
  const int64_t before = counted("synchronizations");
  call();
  return counted("synchronizations") - before;
}

TEST_F(Synchronizations, AreCounted) {
  const at::Tensor x = floats({1, 2, 3});
  const at::Tensor pinned = at::zeros({3}, at::TensorOptions().pinned_memory(true));
  EXPECT_EQ(waits_of([&] { x.add_(1).mul_(2).sum(); }), 0);
  EXPECT_EQ(waits_of([&] { x.sum().item<float>(); }), 1);
  EXPECT_EQ(waits_of([&] { x.cpu(); }), 1);
  EXPECT_EQ(waits_of([&] { pinned.copy_(x, true); }), 0);
  EXPECT_EQ(waits_of([&] { pinned.copy_(x, false); }), 1);
  EXPECT_EQ(waits_of([&] { x.copy_(at::ones({3}), true); }), 1);  // pageable
  EXPECT_EQ(waits_of([&] { at::nonzero(x); }), 1);
  EXPECT_EQ(waits_of([&] { x.index({x > 1}); }), 1);
  c10::Event event(device().type());
  EXPECT_EQ(waits_of([&] { event.record(guard().getStream(device())); }), 0);
  EXPECT_EQ(waits_of([&] { event.synchronize(); }), 1);
  event.record(guard().getStream(device()));
  EXPECT_EQ(waits_of([&] { EXPECT_TRUE(event.query() && event.query()); }), 1);
  event.record(guard().getStream(device()));
  x.add_(1);  // so that the device has work left
  EXPECT_EQ(waits_of([&] { EXPECT_TRUE(event.query()); }), 0);
  EXPECT_EQ(waits_of([] { guard().synchronizeDevice(0); }), 1);
}

TEST(Events, ThatAreTimedSayHowLongTheDeviceTook) {
  c10::Event first(device().type(), c10::EventFlag::BACKEND_DEFAULT),
      last(device().type(), c10::EventFlag::BACKEND_DEFAULT), plain(device().type());
  first.record(guard().getStream(device()));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  last.record(guard().getStream(device()));
  EXPECT_GE(first.elapsedTime(last), 20.0);
  EXPECT_LT(first.elapsedTime(last), 2000.0);
  plain.record(guard().getStream(device()));
  EXPECT_NE(failure_of([&] { first.elapsedTime(plain); }), "nothing thrown");
}

TEST_F(Refusals, NameBothDevicesOfTensorsThatDoNotMeet) {
  expect_told(failure_of([] { floats({1, 2}).add_(at::ones({2})); }),
              {"Expected all tensors to be on the same device"});
}

/// Returns what a thread of its own says of the call.
std::string failure_of_thread(const std::function<void()>& call) {
  std::string told;
  std::thread([&] { told = failure_of(call); }).join();
  return told;
}

TEST_F(Refusals, NameWhatAThreadDoesThatHasChosenNoneOfSeveralDevices) {
  const c10::Event event = device::mark(device());
  const std::string whose = " by a thread that has chosen none of ";
  EXPECT_HAS(failure_of_thread([&] { event.synchronize(); }),
             "the host waits for an event" + whose);
  EXPECT_HAS(failure_of_thread([&] {
               {
                 const c10::DeviceGuard lent(at::Device(at::kPrivateUse1, 3));
               }
               event.query();
             }),
             "an event is asked" + whose);
  EXPECT_EQ(failure_of_thread([&] {
              device::take(at::Device(at::kPrivateUse1, 3));
              event.synchronize();
            }),
            "nothing thrown");
}

TEST_F(Refusals, DoNotMeetAThreadThatWaitsForAMark) {
  const c10::Event event = device::mark(device());
  EXPECT_EQ(failure_of_thread([&] { device::wait(event, [] {}); }), "nothing thrown");
}

TEST(Devices, AreChosenByRanksAndTheirThreadsByThePlacesOnTheMachine) {
  device();
  comm::run_fake_ranks(4, [](const std::shared_ptr<comm::Communicator>& world) {
    const at::Device mine = device::choose("plugin", *world);
    EXPECT_EQ(mine.index(), world->rank());
    EXPECT_EQ(c10::impl::VirtualGuardImpl(at::kPrivateUse1).getDevice(), mine);
  });
}

/// A rank that is a thread, with a communicator and a stream of the plug-in.
struct Rank {
  int rank = 0;
  std::shared_ptr<comm::DeviceApi> api;
  comm::DeviceApi::Comm group = nullptr;
  comm::DeviceApi::Stream stream = nullptr;
  at::Tensor x;

  void* data() const { return x.data_ptr(); }
  size_t bytes() const { return x.nbytes(); }
  /// Waits for the stream and returns what the group then says.
  std::string result() {
    comm::DeviceApi::Event end = nullptr;
    api->create_event(end);
    api->record(end, stream);
    for (int i = 0; i < 2000; ++i) {
      bool done = false;
      int state = 0;
      api->is_done(end, done);
      if (done) return "done";
      api->async_error(group, state);
      if (state != 0) return api->error_text(state, group);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return "nothing said";
  }
};

/// Runs `body` on two ranks and returns what each rank was told.
std::vector<std::string> on_two_ranks(const std::function<void(Rank&)>& body,
                                      bool waits_for_compute = true) {
  const auto api = collectives();
  comm::DeviceApi::UniqueId id{};
  api->unique_id(id);
  // These ranks have devices of their own, since a failed stream stays failed.
  static int next_device = 2;
  const int first = std::exchange(next_device, next_device + 2);
  std::vector<std::string> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Rank rank;
      rank.rank = r;
      rank.api = api;
      api->set_device(first + r);
      api->create_stream(rank.stream);
      api->init_rank(rank.group, {.ranks = 2, .rank = r, .ids = {id}});
      auto& result = results[static_cast<size_t>(r)];
      try {
        rank.x = at::full({3}, r + 1.0, device(first + r));
        if (waits_for_compute) {
          comm::DeviceApi::Event ready = nullptr;
          api->create_event(ready);
          api->record(ready, nullptr);
          api->stream_waits(rank.stream, ready);
        }
        body(rank);
        result = rank.result();
      } catch (const std::exception& error) {
        result = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

int sum(Rank& rank) {
  return rank.api->all_reduce(rank.data(), rank.data(), 3, format::DType::F32,
                              comm::ReduceOp::Sum, rank.group, rank.stream);
}

TEST(Ranks, ACollectiveBehindTheComputeStreamIsRight) {
  const auto results = on_two_ranks([](Rank& rank) { sum(rank); });
  EXPECT_EQ(results, (std::vector<std::string>{"done", "done"}));
}

TEST(Ranks, AHostThatAsksTimeAndAgainWhetherACollectiveIsOverHasWaited) {
  const int64_t waits = waits_of([] {
    on_two_ranks([](Rank& rank) {
      if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      sum(rank);
    });
  });
  EXPECT_EQ(waits, 1);  // rank 0's wait; the other rank's wait is over at once
}

TEST(Ranks, ACollectiveOnTheWrongStreamIsTold) {
  for (const std::string& text : on_two_ranks([](Rank& rank) { sum(rank); }, false)) {
    expect_told(text, {"RACE: all_reduce number 1 (12 bytes), rank ", "of 2 in group",
                       "aten::fill_", "writes"});
  }
}

TEST(Ranks, AUseBeforeTheCollectiveHasEndedIsTold) {
  for (const std::string& text : on_two_ranks([](Rank& rank) {
         sum(rank);
         rank.x.add_(1);
       })) {
    expect_told(text, {"RACE: aten::add", "reads what all_reduce number 1"});
  }
}

TEST(Ranks, AReceiveBeforeTheSendThatTheOtherNeedsIsADeadlock) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& text : on_two_ranks([](Rank& rank) {
         const int other = 1 - rank.rank;
         rank.api->recv(rank.data(), rank.bytes(), other, rank.group, rank.stream);
         rank.api->send(rank.data(), rank.bytes(), other, rank.group, rank.stream);
       })) {
    expect_told(text,
                {"deadlock: ", "'receive from rank 0 number 1 (12 bytes), rank 1 of 2",
                 "is first before 'send to rank 0 number 1", "; which waits for ",
                 "'receive from rank 1 number 1 (12 bytes), rank 0 of 2",
                 "before 'send to rank 1 number 1"});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
}

TEST(Ranks, AReceiveAndASendOfOneGroupGoOnTogether) {
  const auto results = on_two_ranks([](Rank& rank) {
    const int other = 1 - rank.rank;
    const at::Tensor theirs = at::empty_like(rank.x);
    rank.api->group_start();
    rank.api->recv(theirs.data_ptr(), rank.bytes(), other, rank.group, rank.stream);
    rank.api->send(rank.data(), rank.bytes(), other, rank.group, rank.stream);
    rank.api->group_end();
    EXPECT_EQ(rank.result(), "done");
    EXPECT_TRUE(at::equal(theirs.cpu(), at::full({3}, other + 1.0)));
  });
  EXPECT_EQ(results, (std::vector<std::string>{"done", "done"}));
}

/// Sets a variable of the device for a test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

TEST(Ranks, ACallInProgressIsAskedForAndLetsNoOtherCallIn) {
  const Setting setting("SOFTDEV_IN_PROGRESS", "3");
  const auto settle = [](Rank& rank) {
    int state = comm::DeviceApi::kInProgress;
    int asked = 0;
    for (; state == comm::DeviceApi::kInProgress; ++asked) {
      rank.api->async_error(rank.group, state);
    }
    EXPECT_EQ(state, comm::DeviceApi::kSuccess);
    return asked;
  };
  const auto results = on_two_ranks([&](Rank& rank) {
    EXPECT_EQ(settle(rank), 4);  // after the group was made
    EXPECT_EQ(sum(rank), comm::DeviceApi::kInProgress);
    const int refused = sum(rank);
    EXPECT_EQ(rank.api->error_text(refused, rank.group),
              "a call while another is in progress");
    EXPECT_EQ(settle(rank), 4);
    EXPECT_EQ(sum(rank), comm::DeviceApi::kInProgress);
    settle(rank);
  });
  EXPECT_EQ(results, (std::vector<std::string>{"done", "done"}));
}

TEST(Ranks, AQueueThatIsFullBlocksTheHost) {
  const Setting setting("SOFTDEV_QUEUE", "2");
  std::atomic<int> begun = 0;
  const auto results = on_two_ranks([&](Rank& rank) {
    if (rank.rank == 1) {
      while (begun < 2) std::this_thread::yield();
      // The other rank would begin its third sum at once.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(begun, 2);
    }
    for (int i = 0; i < 3; ++i) {
      sum(rank);
      if (rank.rank == 0) ++begun;
    }
  });
  EXPECT_EQ(results, (std::vector<std::string>{"done", "done"}));
  EXPECT_EQ(begun, 3);
}

/// Receives on one stream, and sends on another what the other rank receives.
std::vector<std::string> receive_and_send_on_two_streams() {
  return on_two_ranks([](Rank& rank) {
    const int other = 1 - rank.rank;
    const at::Tensor theirs = at::empty_like(rank.x);
    comm::DeviceApi::Stream beside = nullptr;
    rank.api->create_stream(beside);
    rank.api->recv(theirs.data_ptr(), rank.bytes(), other, rank.group, beside);
    rank.api->send(rank.data(), rank.bytes(), other, rank.group, rank.stream);
    const std::string sent = rank.result();
    if (sent != "done") throw std::runtime_error(sent);
    std::swap(beside, rank.stream);
    EXPECT_EQ(rank.result(), "done");
  });
}

TEST(Ranks, StreamsThatShareAQueueRunInProgramOrder) {
  EXPECT_EQ(receive_and_send_on_two_streams(),
            (std::vector<std::string>{"done", "done"}));
  const Setting setting("SOFTDEV_ONE_QUEUE", "1");
  for (const std::string& text : receive_and_send_on_two_streams()) {
    expect_told(text, {"deadlock: ", "'receive from rank 0 number 1",
                       "is first before 'send to rank 0 number 1"});
  }
}

TEST(Ranks, AHostRunsSomeUnitsAheadOfADeviceThatWaitsForAPeerAndThenLooks) {
  std::atomic<bool> late = true;
  const auto results = on_two_ranks([&](Rank& rank) {
    if (rank.rank == 1) {
      while (late) std::this_thread::yield();
      sum(rank);
      return;
    }
    sum(rank);
    comm::DeviceApi::Event end = nullptr;
    rank.api->create_event(end);
    rank.api->record(end, rank.stream);
    rank.api->stream_waits(nullptr, end);
    int looks = 0;
    device::RunAhead ahead(rank.x.device(), [&] {
      if (++looks == 3) throw std::runtime_error("rank 1 is lost");
    });
    for (size_t unit = 0; unit < device::RunAhead::kUnits; ++unit) ahead.begin_unit();
    EXPECT_EQ(looks, 0);
    EXPECT_EQ(failure_of([&] { ahead.begin_unit(); }), "rank 1 is lost");
    late = false;
    EXPECT_EQ(rank.result(), "done");
    for (size_t unit = 0; unit < device::RunAhead::kUnits; ++unit) ahead.begin_unit();
  });
  EXPECT_EQ(results, (std::vector<std::string>{"done", "done"}));
}

TEST(Ranks, DifferentCollectivesAreToldApart) {
  for (const std::string& text : on_two_ranks([](Rank& rank) {
         if (rank.rank == 0) {
           sum(rank);
         } else {
           rank.api->broadcast(rank.data(), rank.bytes(), 0, rank.group, rank.stream);
         }
       })) {
    expect_told(text, {"number 1 (12 bytes)", "is not: its number 1 has kind"});
  }
}

TEST(Ranks, MemoryOfTheHostIsRefused) {
  std::vector<float> host(3);
  for (const std::string& text : on_two_ranks([&](Rank& rank) {
         rank.api->broadcast(host.data(), 12, 0, rank.group, rank.stream);
       })) {
    expect_told(text, {"broadcast number 1 (12 bytes)", "no memory of the device"});
  }
}

}  // namespace
}  // namespace longhaul::softdev_test
