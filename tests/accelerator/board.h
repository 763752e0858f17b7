#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace longhaul::softdev {

/// An entry of a stream, as other processes see it.
struct Shown {
  enum class Kind : int32_t { Collective, Send, Recv, Wait };
  Kind kind = Kind::Wait;
  int32_t rank = -1;      ///< this process's rank in the group
  int32_t peer = -1;      ///< peer of a send or receive; for a wait the queue's index
  uint64_t group = 0;     ///< number of the group, equal on all of its ranks
  uint64_t number = 0;    ///< number of the collective, or of the transfer of two ranks
  uint64_t position = 0;  ///< place in the stream; transfers of one group share it
  std::array<char, 96> text{};
};

/// The entries of the streams of a process and the waits of its threads, in memory that
/// the other processes of the job can map.
struct Board {
  static constexpr size_t kQueues = 512;
  static constexpr size_t kShown = 24;
  static constexpr size_t kThreads = 64;
  static constexpr size_t kGroups = 4096;
  struct Queue {
    std::atomic<uint32_t> writes = 0;  ///< odd while the queue changes
    int32_t count = 0;  ///< entries in `shown`, from the first of the stream
    int32_t more = 0;   ///< entries that are not shown
    std::array<Shown, kShown> shown;
  };
  /// A group of the process. Its memory is /proc/<pid>/fd/<file>.
  struct Group {
    uint64_t id = 0;
    int32_t file = -1;
    int32_t ranks = 0;
  };
  std::array<Queue, kQueues> queues;
  std::array<Group, kGroups> groups;
  std::atomic<size_t> group_count = 0;
  /// For each thread the index of the queue that the thread waits for, -1 for none.
  std::array<std::atomic<int32_t>, kThreads> threads;
};

/// The place of a process's board: /proc/<pid>/fd/<fd>.
struct BoardPlace {
  int32_t pid = 0;
  int32_t fd = -1;
};

Board& own_board();
BoardPlace own_board_place();
/// Returns the calling thread's place in Board::threads.
int board_thread();
/// Returns the board of another process or of this one, mapped once; null where it is
/// gone.
const Board* board_at(BoardPlace place);

/// Makes a consistent copy of a queue. Returns false where the queue keeps changing.
bool read_queue(const Board& board, size_t queue, std::vector<Shown>& shown, bool& more);

/// Makes, maps or opens memory that is shared under /proc/<pid>/fd/<fd>. Such memory is
/// gone with the last process that has it, so that nothing must be cleaned up.
/// make_shared_file makes a new file of `bytes`, and map_shared_file maps a file that
/// exists.
int make_shared_file(const char* name, size_t bytes);
void* map_shared_file(int fd, size_t bytes);
int open_shared_file(int pid, int fd);

}  // namespace longhaul::softdev
