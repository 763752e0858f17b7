#include "longhaul/comm/mpi.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::comm {
namespace {

constexpr auto kAbortLimit = std::chrono::seconds(10);

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return std::to_string(code);
  return {text, static_cast<size_t>(length)};
}

/// Throws TemporaryError for a failed call: in nearly every case a peer or the network is
/// lost, so that a retry can help.
void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  fail_temporary("comm",
                 "{} failed: {}; a rank or its network is lost, or the ranks disagree "
                 "about the counts",
                 call, error_text(code));
}

class MpiBatch : public Batch {
 public:
  explicit MpiBatch(MPI_Comm comm) : comm_(comm) {}

  void send(int peer, const void* data, size_t bytes, int tag) override {
    MPI_Request request;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, &request),
          "MPI_Isend");
    add(request, -1);
  }

  void recv(int peer, void* data, size_t bytes, int tag) override {
    MPI_Request request;
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, &request),
          "MPI_Irecv");
    add(request, static_cast<int>(bytes));
  }

  bool test() override {
    if (requests_.empty()) return true;
    statuses_.resize(requests_.size());
    int all = 0;
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(),
                                 &all, statuses_.data());
    if (code == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& status : statuses_) {
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "MPI_Testall");
      }
    }
    check(code, "MPI_Testall");
    if (all == 0) return false;
    for (size_t i = 0; i < requests_.size(); ++i)
      check_length(expected_[i], statuses_[i]);
    requests_.clear();
    expected_.clear();
    return true;
  }

 private:
  void add(MPI_Request request, int expected) {
    requests_.push_back(request);
    expected_.push_back(expected);
  }

  /// Throws unless a message is as long as its receiver expects. MPI itself refuses only
  /// messages that are longer.
  static void check_length(int expected, const MPI_Status& status) {
    if (expected < 0) return;
    int got = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &got), "MPI_Get_count");
    LH_CHECK(
        got == expected, "comm",
        "rank {} of the group sent {} bytes where {} were expected: the ranks disagree "
        "about the counts",
        status.MPI_SOURCE, got, expected);
  }

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;  ///< bytes of a receive, -1 for a send
  std::vector<MPI_Status> statuses_;
};

/// A transport over an MPI_Comm, which is never freed: freeing it is a collective.
class MpiTransport : public Transport {
 public:
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {
    check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Batch> open() override { return std::make_unique<MpiBatch>(comm_); }

  std::unique_ptr<Transport> split(int color, std::span<const int> members) override {
    const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, color, static_cast<int>(place), &part), "MPI_Comm_split");
    return std::make_unique<MpiTransport>(part);
  }

  /// Ends the job by MPI_Abort. MPI_Abort asks the launcher, which may be gone or stuck,
  /// so a second thread ends the process after kAbortLimit.
  void abort(int exit_code) override {
    std::fflush(nullptr);
    std::thread([exit_code] {
      std::this_thread::sleep_for(kAbortLimit);
      _exit(exit_code);
    }).detach();
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
};

void start_mpi() {
  int started = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  if (started != 0) return;
  int level = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level),
        "MPI_Init_thread");
  if (level < MPI_THREAD_FUNNELED) {
    fail_config("comm",
                "this MPI library forbids threads (MPI_THREAD_SINGLE); use an MPI "
                "library that provides MPI_THREAD_FUNNELED");
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
        "MPI_Comm_set_errhandler");
}

}  // namespace

std::unique_ptr<Transport> mpi_world_transport() {
  start_mpi();
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(comm);
}

void mpi_finish() {
  int started = 0;
  int ended = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  check(MPI_Finalized(&ended), "MPI_Finalized");
  if (started != 0 && ended == 0) check(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace longhaul::comm
