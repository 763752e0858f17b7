#include "longhaul/comm/nccl.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "longhaul/base/error.h"
#include "longhaul/comm/conformance.h"
#include "longhaul/comm/fake.h"
#include "longhaul/comm/nccl_communicator.h"

namespace longhaul::comm {
namespace {

/// Groups that the ranks of one fake NCCL job meet in, by unique id.
class Meeting {
 public:
  char new_id() {
    const std::lock_guard lock(mutex_);
    return ++last_id_;
  }
  std::shared_ptr<Communicator> join(char id, int ranks, int rank) {
    const std::lock_guard lock(mutex_);
    auto& world = worlds_[id];
    if (world.empty()) world = fake_world(ranks);
    return world[static_cast<size_t>(rank)];
  }

 private:
  std::mutex mutex_;
  char last_id_ = 0;
  std::map<char, std::vector<std::shared_ptr<Communicator>>> worlds_;
};

/// NCCL and CUDA of one rank, on host memory: operations really take place, a stream is
/// the list of what was put into it.
class FakeNccl : public NcclApi {
 public:
  explicit FakeNccl(std::shared_ptr<Meeting> meeting) : meeting_(std::move(meeting)) {}

  // What a test sets.
  int polls_in_progress = 0;  ///< of async_error after every call
  int fails_with = kSuccess;  ///< what async_error then says
  bool stalls = false;        ///< no operation ever ends
  double abort_seconds = 0.0;
  bool knows_ids = true;
  // What a test looks at.
  std::atomic<int> aborted = 0;  ///< by a thread of its own
  int sent_alone = 0;            ///< transfers outside of a group
  std::vector<std::string> log;
  std::set<Stream> collective_streams;
  std::set<Stream> transfer_streams;

  int unique_id(UniqueId& id) override {
    if (!knows_ids) return 2;
    id.fill(0);
    id[0] = meeting_->new_id();
    return kSuccess;
  }
  int init_rank(Comm& comm, int ranks, const UniqueId& id, int rank) override {
    groups_.push_back(std::make_unique<Group>());
    groups_.back()->ranks = meeting_->join(id[0], ranks, rank);
    comm = groups_.back().get();
    return answer();
  }
  int all_reduce(const void* in, void* out, size_t count, DType dtype, ReduceOp op,
                 Comm comm, Stream stream) override {
    log.emplace_back("all_reduce");
    collective_streams.insert(stream);
    if (in != out) std::memcpy(out, in, count * dtype_size(dtype));
    return put(stream,
               of(comm).ranks->all_reduce({out, static_cast<int64_t>(count), dtype}, op));
  }
  int all_gather(const void* in, void* out, size_t bytes, Comm comm,
                 Stream stream) override {
    const auto n = static_cast<int64_t>(bytes);
    return put(stream,
               of(comm).ranks->all_gather({in, n, DType::U8},
                                          {out, n * of(comm).ranks->size(), DType::U8}));
  }
  int reduce_scatter(const void* in, void* out, size_t count, DType dtype, ReduceOp op,
                     Comm comm, Stream stream) override {
    const auto n = static_cast<int64_t>(count);
    return put(stream, of(comm).ranks->reduce_scatter(
                           {in, n * of(comm).ranks->size(), dtype}, {out, n, dtype}, op));
  }
  int broadcast(void* buffer, size_t bytes, int root, Comm comm, Stream stream) override {
    return put(stream, of(comm).ranks->broadcast(
                           {buffer, static_cast<int64_t>(bytes), DType::U8}, root));
  }
  int send(const void* data, size_t bytes, int peer, Comm comm, Stream stream) override {
    return transfer(Transfer::Kind::Send, const_cast<void*>(data), bytes, peer, comm,
                    stream);
  }
  int recv(void* data, size_t bytes, int peer, Comm comm, Stream stream) override {
    return transfer(Transfer::Kind::Recv, data, bytes, peer, comm, stream);
  }
  int group_start() override {
    in_group_ = true;
    return kSuccess;
  }
  int group_end() override {
    in_group_ = false;
    for (const auto& group : groups_) {
      if (group->pending.empty()) continue;
      const Stream stream = group->pending_stream;
      put(stream, group->ranks->send_recv(std::move(group->pending)));
      group->pending.clear();
    }
    return answer();
  }
  int async_error(Comm, int& state) override {
    state = polls_left_ > 0 ? kInProgress : fails_with;
    if (polls_left_ > 0) --polls_left_;
    return kSuccess;
  }
  int abort(Comm) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(abort_seconds));
    ++aborted;
    return kSuccess;
  }
  std::string nccl_text(int result, Comm) override {
    return "result " + std::to_string(result);
  }

  int set_device(int device) override { return device == 7 ? 0 : 101; }
  int create_stream(Stream& stream) override {
    streams_.push_back(std::make_unique<Works>());
    stream = streams_.back().get();
    return 0;
  }
  int create_event(Event& event) override {
    events_.push_back(std::make_unique<Works>());
    event = events_.back().get();
    ++made_events;
    return 0;
  }
  int record(Event event, Stream stream) override {
    *static_cast<Works*>(event) =
        stream == nullptr ? Works{} : *static_cast<Works*>(stream);
    if (stream == nullptr) ++recorded_compute;
    return 0;
  }
  int stream_waits(Stream, Event) override { return 0; }
  int is_done(Event event, bool& done) override {
    // A device works on all its streams, whichever is asked for.
    for (const auto& stream : streams_) {
      std::erase_if(*stream, [](const auto& work) { return work->test(); });
    }
    done = !stalls;
    for (const auto& work : *static_cast<Works*>(event)) done = done && work->test();
    return 0;
  }
  std::string cuda_text(int result) override { return "error " + std::to_string(result); }
  int made_events = 0;
  int recorded_compute = 0;

 private:
  using Works = std::vector<std::shared_ptr<Work>>;
  struct Group {
    std::shared_ptr<Communicator> ranks;
    std::vector<Transfer> pending;
    Stream pending_stream = nullptr;
  };

  static Group& of(Comm comm) { return *static_cast<Group*>(comm); }
  int answer() {
    polls_left_ = polls_in_progress;
    return polls_left_ > 0 ? kInProgress : kSuccess;
  }
  int put(Stream stream, WorkPtr work) {
    static_cast<Works*>(stream)->push_back(std::move(work));
    return answer();
  }
  int transfer(Transfer::Kind kind, void* data, size_t bytes, int peer, Comm comm,
               Stream stream) {
    if (!in_group_) ++sent_alone;
    transfer_streams.insert(stream);
    Group& group = of(comm);
    if (peer == group.ranks->rank()) {
      // NCCL also carries what a rank sends to itself.
      if (kind == Transfer::Kind::Send) {
        to_self_ = data;
      } else {
        std::memcpy(data, to_self_, bytes);
      }
      return kSuccess;
    }
    group.pending.push_back({kind, peer, {data, static_cast<int64_t>(bytes), DType::U8}});
    group.pending_stream = stream;
    return kSuccess;
  }

  std::shared_ptr<Meeting> meeting_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Works>> streams_;
  std::vector<std::unique_ptr<Works>> events_;
  bool in_group_ = false;
  const void* to_self_ = nullptr;
  int polls_left_ = 0;
};

using Body = std::function<void(NcclCommunicator&, FakeNccl&)>;

/// Runs `body` on every rank over fakes that `prepare` may change first.
void run_ranks(int ranks, const Body& body, const NcclOptions& options = {},
               const std::function<void(FakeNccl&, int rank)>& prepare = {}) {
  const auto meeting = std::make_shared<Meeting>();
  run_fake_ranks(ranks, [&](const std::shared_ptr<Communicator>& world) {
    const auto fake = std::make_shared<FakeNccl>(meeting);
    if (prepare) prepare(*fake, world->rank());
    NcclCommunicator group(fake, world, /*device=*/7, options);
    body(group, *fake);
  });
}

/// One value per rank that outlives the ranks: what failed is still under way, and the
/// other rank may read it after the body of this one has ended.
template <typename T>
struct Lasting : std::array<T, 2> {
  T& operator[](int rank) { return this->at(static_cast<size_t>(rank)); }
};

using Case = std::tuple<int, int, Conformance>;
class Nccl : public testing::TestWithParam<Case> {};

TEST_P(Nccl, Conforms) {
  const auto& [ranks, polls, conformance] = GetParam();
  run_ranks(
      ranks,
      [&](NcclCommunicator& group, FakeNccl& fake) {
        conformance.check(group);
        EXPECT_EQ(fake.sent_alone, 0);
      },
      {}, [&](FakeNccl& fake, int) { fake.polls_in_progress = polls; });
}

INSTANTIATE_TEST_SUITE_P(FakeCalls, Nccl,
                         testing::Combine(testing::Values(1, 3), testing::Values(0, 2),
                                          testing::ValuesIn(conformance_checks())),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return std::get<2>(tested.param).name + "_" +
                                  std::to_string(std::get<0>(tested.param)) +
                                  (std::get<1>(tested.param) > 0 ? "_in_progress" : "");
                         });

template <typename Work>
std::string failure_of(const Work& work) {
  try {
    work();
  } catch (const TemporaryError& error) {
    return error.what();
  }
  return "nothing thrown";
}

void expect_start(const std::string& text, const std::string& expected) {
  EXPECT_EQ(text.substr(0, expected.size()), expected);
}

TEST(NcclFailure, ADeadlineNamesTheOperation) {
  NcclOptions options;
  options.limits.deadline_seconds = 0.2;
  Lasting<float> xs{1.0F, 1.0F};
  run_ranks(
      2,
      [&](NcclCommunicator& group, FakeNccl& fake) {
        fake.stalls = true;
        group.ledger().set("backward", 12);
        const Label label(group.ledger(), "gradient bucket 3");
        float& x = xs[group.rank()];
        const WorkPtr work = group.all_reduce({&x, 1, DType::F32}, ReduceOp::Sum);
        EXPECT_EQ(group.ledger().under_way(), 1);
        expect_start(failure_of([&] { work->wait(); }),
                     "[comm] step 12 phase backward: all_reduce number 1 (4 bytes) on "
                     "'world' [gradient bucket 3], rank " +
                         std::to_string(group.rank()) +
                         " of 2, did not end within 0.2 s");
      },
      options);
}

TEST(NcclFailure, AnErrorOfNcclEndsTheWaitAtOnce) {
  Lasting<float> xs{1.0F, 1.0F};
  run_ranks(2, [&](NcclCommunicator& group, FakeNccl& fake) {
    float& x = xs[group.rank()];
    const WorkPtr work = group.all_reduce({&x, 1, DType::F32}, ReduceOp::Sum);
    fake.stalls = true;
    fake.fails_with = 6;
    const auto start = std::chrono::steady_clock::now();
    expect_start(failure_of([&] { work->wait(); }),
                 "[comm] all_reduce number 1 (4 bytes) on 'world', rank " +
                     std::to_string(group.rank()) + " of 2, failed: NCCL: result 6");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  });
}

TEST(NcclFailure, ACallThatFailsLateIsToldBeforeAnythingFollows) {
  Lasting<double> xs{1.0, 1.0};
  run_ranks(2, [&](NcclCommunicator& group, FakeNccl& fake) {
    fake.polls_in_progress = 3;
    fake.fails_with = 2;
    double& x = xs[group.rank()];
    const int events = fake.made_events;
    expect_start(failure_of([&] { group.broadcast({&x, 1, DType::F64}, 0); }),
                 "[comm] broadcast number 1 (8 bytes) on 'world', rank " +
                     std::to_string(group.rank()) + " of 2, failed: NCCL: result 2");
    EXPECT_EQ(fake.made_events, events + 1);  // the one before it, none behind it
  });
}

TEST(NcclFailure, ACallThatNeverSettlesMeetsTheDeadline) {
  NcclOptions options;
  options.limits.deadline_seconds = 0.2;
  run_ranks(
      1,
      [](NcclCommunicator& group, FakeNccl& fake) {
        fake.polls_in_progress = 1 << 30;
        float x = 1.0F;
        EXPECT_NE(failure_of([&] {
                    group.all_reduce({&x, 1, DType::F32}, ReduceOp::Sum);
                  }).find("did not end within 0.2 s"),
                  std::string::npos);
      },
      options);
}

TEST(NcclFailure, AJobThatEndsEndsTheWait) {
  NcclOptions options;
  options.limits.job_ends = [] { return std::string("the end"); };
  run_ranks(
      1,
      [](NcclCommunicator& group, FakeNccl& fake) {
        fake.stalls = true;
        float x = 1.0F;
        const WorkPtr work = group.all_reduce({&x, 1, DType::F32}, ReduceOp::Sum);
        EXPECT_EQ(failure_of([&] { work->wait(); }),
                  "[comm] all_reduce number 1 (4 bytes) on 'world', rank 0 of 1, was "
                  "under way: the end");
      },
      options);
}

TEST(NcclFailure, WithoutAUniqueIdEveryRankIsTold) {
  std::mutex mutex;
  int told = 0;
  EXPECT_THROW(run_ranks(
                   3, [](NcclCommunicator&, FakeNccl&) { FAIL() << "made"; }, {},
                   [&](FakeNccl& fake, int) {
                     fake.knows_ids = false;
                     const std::lock_guard lock(mutex);
                     ++told;
                   }),
               TemporaryError);
  EXPECT_EQ(told, 3);
}

TEST(NcclFailure, ADeviceThatIsAbsentIsTold) {
  const auto fake = std::make_shared<FakeNccl>(std::make_shared<Meeting>());
  const std::shared_ptr<Communicator> alone = fake_world(1)[0];
  EXPECT_NE(failure_of([&] {
              NcclCommunicator(fake, alone, 3, {});
            }).find("cudaSetDevice: error 101"),
            std::string::npos);
}

/// Seconds that abort() took.
double abort_takes(double nccl_takes, double limit, int& aborted) {
  NcclOptions options;
  options.abort_seconds = limit;
  double seconds = 0.0;
  run_ranks(
      1,
      [&](NcclCommunicator& group, FakeNccl& fake) {
        fake.abort_seconds = nccl_takes;
        const auto start = std::chrono::steady_clock::now();
        group.abort(1);
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
                      .count();
        aborted = fake.aborted;
      },
      options);
  return seconds;
}

TEST(NcclAbort, EndsBothCommunicators) {
  int aborted = 0;
  EXPECT_LT(abort_takes(0.0, 10.0, aborted), 5.0);
  EXPECT_EQ(aborted, 2);
}

TEST(NcclAbort, IsLeftWhenItHangs) {
  int aborted = 0;
  const double seconds = abort_takes(1.0, 0.2, aborted);
  EXPECT_GE(seconds, 0.2);
  EXPECT_LT(seconds, 0.9);
  EXPECT_EQ(aborted, 0);
  std::this_thread::sleep_for(
      std::chrono::seconds(3));  // its thread ends before the test
}

TEST(NcclStreams, OperationsBeginAfterTheCallersAndEventsAreUsedAgain) {
  run_ranks(2, [](NcclCommunicator& group, FakeNccl& fake) {
    std::vector<float> x(100, 1.0F);
    for (int i = 0; i < 5; ++i) {
      group.all_reduce_wait({x.data(), 100, DType::F32}, ReduceOp::Sum);
    }
    EXPECT_EQ(fake.recorded_compute, 5);
    EXPECT_LE(fake.made_events, 2);
    group.all_reduce_wait({x.data(), 0, DType::F32}, ReduceOp::Sum);
    EXPECT_EQ(fake.log.size(), 5U);  // nothing to send, nothing asked
  });
}

TEST(NcclStreams, TransfersHaveTheirOwn) {
  run_ranks(2, [](NcclCommunicator& group, FakeNccl& fake) {
    float x = 1.0F;
    group.all_reduce_wait({&x, 1, DType::F32}, ReduceOp::Sum);
    const auto kind = group.rank() == 0 ? Transfer::Kind::Send : Transfer::Kind::Recv;
    group.send_recv({{kind, 1 - group.rank(), {&x, 1, DType::F32}}})->wait();
    ASSERT_EQ(fake.collective_streams.size(), 1U);
    ASSERT_EQ(fake.transfer_streams.size(), 1U);
    EXPECT_NE(*fake.collective_streams.begin(), *fake.transfer_streams.begin());
  });
}

TEST(NcclBuild, WithoutItTheErrorSaysWhatToDo) {
  if (nccl_is_built()) return;
  const auto world = fake_world(1)[0];
  try {
    nccl_group(*world, 0);
    FAIL() << "made";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("this build has no NCCL"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace longhaul::comm
