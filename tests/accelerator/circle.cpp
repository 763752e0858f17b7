#include "tests/accelerator/circle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tests/accelerator/group.h"

namespace longhaul::softdev {
namespace {

/// A stream of a process.
struct Node {
  BoardPlace place;
  int queue = -1;
  std::pair<int, int> key() const { return {place.pid, queue}; }
};

/// Returns the memory of a group of a process, mapped once; null if the group is not
/// found.
const Segment* segment_of(BoardPlace place, uint64_t id) {
  static std::mutex mutex;
  static auto* const known = new std::map<uint64_t, std::unique_ptr<Segment>>;
  const std::lock_guard lock(mutex);
  auto& segment = (*known)[id];
  if (segment != nullptr) return segment.get();
  const Board* board = board_at(place);
  if (board == nullptr) return nullptr;
  for (size_t i = 0; i < std::min(board->group_count.load(), Board::kGroups); ++i) {
    const Board::Group& group = board->groups[i];
    if (group.id != id || group.ranks == 0) continue;
    const int file = open_shared_file(place.pid, group.file);
    if (file < 0) return nullptr;
    segment = std::make_unique<Segment>(file, group.ranks);
    ::close(file);
    return segment.get();
  }
  return nullptr;
}

class Search {
 public:
  std::string from(const Node& start) {
    follow(start);
    return found_;
  }

 private:
  void follow(const Node& node) {
    if (!found_.empty() || node.queue < 0) return;
    for (size_t i = 0; i < path_.size(); ++i) {
      if (path_[i].first.key() == node.key()) {
        tell(i);
        return;
      }
    }
    if (!seen_.insert(node.key()).second) return;
    const Board* board = board_at(node.place);
    std::vector<Shown> shown;
    bool more = false;
    if (board == nullptr ||
        !read_queue(*board, static_cast<size_t>(node.queue), shown, more) ||
        shown.empty()) {
      return;
    }
    path_.emplace_back(node, shown);
    for (const Shown& part : shown) {
      if (part.position != shown.front().position) break;
      if (part.kind == Shown::Kind::Wait) {
        follow({node.place, part.peer});
      } else {
        follow_group(node, part);
      }
    }
    path_.pop_back();
  }

  void follow_group(const Node& node, const Shown& part) {
    const Segment* segment = segment_of(node.place, part.group);
    if (segment == nullptr) return;
    if (part.kind == Shown::Kind::Collective) {
      for (int r = 0; r < segment->ranks(); ++r) {
        const Member& member = segment->member(r);
        if (r == part.rank || member.entered.load() >= part.number) continue;
        Shown theirs = part;
        theirs.rank = r;
        follow_rank(member, theirs, member.issued.load() >= part.number);
      }
      return;
    }
    const bool sends = part.kind == Shown::Kind::Send;
    const Mailbox& box = sends ? segment->mailbox(part.rank, part.peer)
                               : segment->mailbox(part.peer, part.rank);
    Shown theirs = part;
    theirs.kind = sends ? Shown::Kind::Recv : Shown::Kind::Send;
    theirs.rank = part.peer;
    theirs.peer = part.rank;
    follow_rank(segment->member(part.peer), theirs,
                (sends ? box.recvs_issued : box.sends_issued).load() >= part.number);
  }

  /// Finds what keeps `wanted` from beginning on its rank.
  void follow_rank(const Member& member, const Shown& wanted, bool issued) {
    const BoardPlace place{member.pid.load(), member.board_file.load()};
    const Board* board = place.pid == 0 ? nullptr : board_at(place);
    if (board == nullptr) return;
    if (!issued) {  // the thread that would start it may wait for something else
      const int thread = member.thread.load();
      if (thread >= 0) {
        follow({place, board->threads[static_cast<size_t>(thread)].load()});
      }
      return;
    }
    for (size_t q = 0; q < Board::kQueues; ++q) {
      std::vector<Shown> shown;
      bool more = false;
      if (!read_queue(*board, q, shown, more)) continue;
      for (const Shown& part : shown) {
        if (part.kind != wanted.kind || part.group != wanted.group ||
            part.number != wanted.number || part.rank != wanted.rank ||
            part.peer != wanted.peer) {
          continue;
        }
        // At the head of its stream the operation goes on by itself.
        if (part.position != shown.front().position) follow({place, static_cast<int>(q)});
        return;
      }
    }
  }

  void tell(size_t begin) {
    for (size_t i = begin; i < path_.size(); ++i) {
      const auto& [node, shown] = path_[i];
      const auto text = [](const Shown& part) { return std::string(part.text.data()); };
      std::string line = fmt::format("process {}, stream number {}: '{}' is first",
                                     node.place.pid, node.queue, text(shown.front()));
      std::string behind;
      for (size_t k = 1; k < std::min<size_t>(shown.size(), 4); ++k) {
        const bool together = shown[k].position == shown.front().position;
        behind += fmt::format("{} '{}'", together ? " together with" : " before",
                              text(shown[k]));
      }
      found_ += (found_.empty() ? "" : "; which waits for ") + line + behind;
    }
    found_ += "; which waits for the first of these";
  }

  std::vector<std::pair<Node, std::vector<Shown>>> path_;
  std::set<std::pair<int, int>> seen_;
  std::string found_;
};

}  // namespace

std::string find_circle(BoardPlace place, int queue) {
  return Search().from({place, queue});
}

}  // namespace longhaul::softdev
