#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace longhaul::softdev {

/// One thing that stands in a stream, as other processes see it.
struct Shown {
  enum class Kind : int32_t { Collective, Send, Recv, Wait };
  Kind kind = Kind::Wait;
  int32_t rank = -1;      ///< in the group
  int32_t peer = -1;      ///< of a send or receive; of a wait the stream's index
  uint64_t group = 0;     ///< which ranks, the same number on each of them
  uint64_t number = 0;    ///< of the collective, or of the transfer between the two
  uint64_t position = 0;  ///< in the stream; transfers of one group share it
  std::array<char, 96> text{};
};

/// What stands in the streams of a process and what its threads wait for, in memory that
/// the other processes of the job can map.
struct Board {
  static constexpr size_t kQueues = 512;
  static constexpr size_t kShown = 24;
  static constexpr size_t kThreads = 64;
  static constexpr size_t kGroups = 4096;
  struct Queue {
    std::atomic<uint32_t> writes = 0;  ///< odd while it changes
    int32_t count = 0;                 ///< in `shown`, the first of what stands there
    int32_t more = 0;                  ///< stands there and is not shown
    std::array<Shown, kShown> shown;
  };
  /// A group that the process is in, whose memory is /proc/<pid>/fd/<file>.
  struct Group {
    uint64_t id = 0;
    int32_t file = -1;
    int32_t ranks = 0;
  };
  std::array<Queue, kQueues> queues;
  std::array<Group, kGroups> groups;
  std::atomic<size_t> group_count = 0;
  /// The index of the stream that a thread waits for, -1 for none.
  std::array<std::atomic<int32_t>, kThreads> threads;
};

/// Where a process's board is: /proc/<pid>/fd/<fd>.
struct BoardPlace {
  int32_t pid = 0;
  int32_t fd = -1;
};

Board& own_board();
BoardPlace own_board_place();
/// The calling thread's place in Board::threads.
int board_thread();
/// The board of another process (or this one), mapped once; nothing where it is gone.
const Board* board_at(BoardPlace place);

/// A consistent copy of what stands in a queue; false where it keeps changing.
bool read_queue(const Board& board, size_t queue, std::vector<Shown>& shown, bool& more);

/// Memory shared under /proc/<pid>/fd/<fd>: gone with the last process that has it, so
/// nothing is left to be cleaned up. make: a new file of `bytes`; map: one that exists.
int make_shared_file(const char* name, size_t bytes);
void* map_shared_file(int fd, size_t bytes);
int open_shared_file(int pid, int fd);

}  // namespace longhaul::softdev
