#include "tests/accelerator/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::softdev {
namespace {

int own_board_file() {
  static const int file = make_shared_file("softdev-board", sizeof(Board));
  return file;
}

}  // namespace

int make_shared_file(const char* name, size_t bytes) {
  const int file = ::memfd_create(name, MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    throw Error(ErrorKind::Internal, "softdev", "no shared memory: memfd_create failed");
  }
  return file;
}

void* map_shared_file(int fd, size_t bytes) {
  void* at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (at == MAP_FAILED) {
    throw Error(ErrorKind::Internal, "softdev", "shared memory cannot be mapped");
  }
  return at;
}

int open_shared_file(int pid, int fd) {
  return ::open(fmt::format("/proc/{}/fd/{}", pid, fd).c_str(), O_RDWR | O_CLOEXEC);
}

Board& own_board() {
  static Board* const board = [] {
    auto* made = static_cast<Board*>(map_shared_file(own_board_file(), sizeof(Board)));
    for (auto& thread : made->threads) thread = -1;
    return made;
  }();
  return *board;
}

BoardPlace own_board_place() {
  own_board();
  return {::getpid(), own_board_file()};
}

int board_thread() {
  static std::atomic<int> threads = 0;
  thread_local const int mine = threads++ % static_cast<int>(Board::kThreads);
  return mine;
}

const Board* board_at(BoardPlace place) {
  if (place.pid == ::getpid()) return &own_board();
  static std::mutex mutex;
  static auto* const boards = new std::map<std::pair<int, int>, const Board*>;
  const std::lock_guard lock(mutex);
  const Board*& board = (*boards)[{place.pid, place.fd}];
  if (board == nullptr) {
    const int file = open_shared_file(place.pid, place.fd);
    if (file < 0) return nullptr;
    board = static_cast<const Board*>(map_shared_file(file, sizeof(Board)));
    ::close(file);
  }
  return board;
}

bool read_queue(const Board& board, size_t queue, std::vector<Shown>& shown, bool& more) {
  const Board::Queue& q = board.queues[queue];
  for (int tries = 0; tries < 100; ++tries) {
    const uint32_t before = q.writes.load();
    if (before % 2 == 0) {
      shown.assign(q.shown.begin(), q.shown.begin() + q.count);
      more = q.more > 0;
      std::atomic_thread_fence(std::memory_order_acquire);
      if (q.writes.load() == before) return true;
    }
    std::this_thread::yield();
  }
  return false;
}

}  // namespace longhaul::softdev
