#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "tests/accelerator/board.h"

namespace longhaul::softdev {

// Ranks of one machine that exchange data through shared memory.

/// What a rank is about to do. The other ranks compare it with what they do.
struct Headline {
  uint64_t number = 0;
  int32_t kind = 0;
  int32_t dtype = 0;
  int32_t op = 0;
  int32_t root = 0;
  uint64_t bytes = 0;
  bool operator==(const Headline&) const = default;
};

/// A rank as the other ranks see it.
struct alignas(64) Member {
  std::atomic<int32_t> pid = 0;  ///< 0: the rank has not joined yet
  std::atomic<int32_t> board_file = -1;
  std::atomic<int32_t> thread = -1;  ///< the thread that starts the rank's operations
  std::atomic<uint64_t> issued = 0;  ///< collectives put into a stream
  std::atomic<uint64_t> entered = 0;
  std::atomic<uint64_t> phase = 0;  ///< meetings that the rank has come to
  Headline headline;
};

/// Carries data from one rank to another, a piece at a time.
struct alignas(64) Mailbox {
  static constexpr size_t kPiece = size_t{32} << 10;
  std::atomic<uint64_t> sends_issued = 0;
  std::atomic<uint64_t> recvs_issued = 0;
  std::atomic<uint64_t> written = 0;
  std::atomic<uint64_t> read = 0;
  uint64_t message_bytes = 0;
  std::byte data[kPiece];
};

/// The memory of a group, mapped.
class Segment {
 public:
  /// Bytes of each rank for collectives.
  static constexpr size_t kSlot = size_t{256} << 10;
  Segment(int file, int ranks);
  static size_t size_of(int ranks);

  int ranks() const { return ranks_; }
  Member& member(int rank) const;
  std::byte* slot(int rank) const;
  Mailbox& mailbox(int from, int to) const;

  /// Wakes the ranks that sleep, because something has changed.
  void ring() const;
  uint32_t bell() const;
  /// Sleeps until the bell rings, 20 ms at most.
  void sleep(uint32_t bell) const;

  /// Ends the group on all ranks. The first text is kept.
  void fail(std::string_view text) const;
  /// Returns why the group has ended; empty while it goes on.
  std::string failure() const;

  /// Tells the ranks that one of them stands still, or returns whether one does.
  void stand_still() const;
  bool stands_still() const;

 private:
  struct Head;
  Head& head() const;
  std::byte* at_;
  int ranks_;
};

class Group;

struct GroupTransfer {
  Group* group = nullptr;
  bool sends = false;
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  uint64_t number = 0;  ///< number among the transfers of this kind of the two ranks
  size_t moved = 0;
  bool done = false;
};

/// A rank's end of a group. The calls run on the threads of streams and block until the
/// other ranks have done their part. All throw the text that ended the group.
class Group {
 public:
  /// Makes the id by which the ranks meet. Only one rank calls it.
  static std::string make_id();
  Group(const std::string& id, int ranks, int rank);

  int rank() const { return rank_; }
  int ranks() const { return segment_.ranks(); }
  uint64_t id() const { return id_; }
  const Segment& segment() const { return segment_; }

  /// Compares what the ranks are about to do, and throws where they differ.
  void begin(const Headline& headline, const std::string& text);
  void all_reduce(const std::byte* in, std::byte* out, size_t count, format::DType dtype,
                  comm::ReduceOp op);
  void all_gather(const std::byte* in, std::byte* out, size_t bytes);
  void reduce_scatter(const std::byte* in, std::byte* out, size_t count,
                      format::DType dtype, comm::ReduceOp op);
  void broadcast(std::byte* buffer, size_t bytes, int root);

  /// Waits until `ready`, which other ranks bring about.
  void wait_until(const std::function<bool()>& ready) const;

 private:
  void meet();
  std::vector<const std::byte*> slots() const;

  uint64_t id_ = 0;
  int rank_;
  int file_;
  Segment segment_;
};

/// Moves sends and receives together until all are done.
void run_transfers(std::vector<GroupTransfer>& transfers);

/// Watches a wait on a stream's thread: throws where another rank has ended the group, a
/// process is dead, ranks wait in a circle, or SOFTDEV_LIMIT has passed.
class Patience {
 public:
  explicit Patience(const Segment& segment) : segment_(segment) {}
  void check();
  /// Tells that something has moved.
  void start_again() { start_ = -1.0; }

 private:
  void check_processes() const;

  const Segment& segment_;
  double start_ = -1.0;
  double looked_ = 0.0;
  std::string circle_;
};

}  // namespace longhaul::softdev
