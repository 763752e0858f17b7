#include "tests/support/local_transport.h"

#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::comm {
namespace {

/// One end of a message. The hub's mutex guards all fields.
struct Post {
  bool is_send;
  int from;
  int to;
  int tag;
  const void* source;
  void* target;
  size_t bytes;
  bool done = false;
  bool cut_short = false;  ///< the other end named another length
};

class Hub {
 public:
  explicit Hub(int ranks) : ranks_(ranks) {}

  int ranks() const { return ranks_; }

  void post(const std::shared_ptr<Post>& post) {
    const std::lock_guard lock(mutex_);
    if (aborted_by_ >= 0) return;  // a peer that has aborted may have freed its memory
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      Post& other = **it;
      if (other.is_send == post->is_send || other.from != post->from ||
          other.to != post->to || other.tag != post->tag) {
        continue;
      }
      deliver(post->is_send ? *post : other, post->is_send ? other : *post);
      open_.erase(it);
      return;
    }
    open_.push_back(post);
  }

  /// Returns true when all posts are done.
  bool test(const std::vector<std::shared_ptr<Post>>& posts) {
    const std::lock_guard lock(mutex_);
    bool all = true;
    for (const auto& post : posts) {
      LH_CHECK(!post->cut_short, "comm",
               "a message from rank {} to rank {} is not {} bytes long as its receiver "
               "expects: the ranks disagree about the counts",
               post->from, post->to, post->bytes);
      all = all && post->done;
    }
    if (!all && aborted_by_ >= 0) {
      throw TemporaryError("comm", fmt::format("rank {} aborted the group", aborted_by_));
    }
    return all;
  }

  /// Removes posts whose memory may be freed.
  void withdraw(const std::vector<std::shared_ptr<Post>>& posts) {
    const std::lock_guard lock(mutex_);
    for (const auto& post : posts) open_.remove(post);
  }

  void abort(int rank) {
    const std::lock_guard lock(mutex_);
    aborted_by_ = rank;
    for (const auto& [key, child] : children_) child->abort(rank);
  }

  std::shared_ptr<Hub> child(int64_t sequence, int color, int ranks) {
    const std::lock_guard lock(mutex_);
    auto& hub = children_[{sequence, color}];
    if (!hub) {
      hub = std::make_shared<Hub>(ranks);
      hub->aborted_by_ = aborted_by_;
    }
    return hub;
  }

 private:
  static void deliver(Post& send, Post& recv) {
    send.done = recv.done = true;
    recv.cut_short = send.bytes != recv.bytes;
    if (!recv.cut_short && send.bytes > 0) {
      std::memcpy(recv.target, send.source, send.bytes);
    }
  }

  int ranks_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Post>> open_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<Hub>> children_;
  int aborted_by_ = -1;
};

class LocalBatch : public Batch {
 public:
  LocalBatch(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~LocalBatch() override {
    if (!posts_.empty()) hub_->withdraw(posts_);
  }

  void send(int peer, const void* data, size_t bytes, int tag) override {
    post({true, rank_, peer, tag, data, nullptr, bytes});
  }
  void recv(int peer, void* data, size_t bytes, int tag) override {
    post({false, peer, rank_, tag, nullptr, data, bytes});
  }
  bool test() override {
    if (!hub_->test(posts_)) return false;
    posts_.clear();
    return true;
  }

 private:
  void post(Post post) {
    posts_.push_back(std::make_shared<Post>(post));
    hub_->post(posts_.back());
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  std::vector<std::shared_ptr<Post>> posts_;
};

class LocalTransport : public Transport {
 public:
  LocalTransport(std::shared_ptr<Hub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks(); }
  std::unique_ptr<Batch> open() override {
    return std::make_unique<LocalBatch>(hub_, rank_);
  }
  std::unique_ptr<Transport> split(int color, std::span<const int> members) override {
    int place = 0;
    while (members[static_cast<size_t>(place)] != rank_) ++place;
    return std::make_unique<LocalTransport>(
        hub_->child(splits_++, color, static_cast<int>(members.size())), place);
  }
  void abort(int) override { hub_->abort(rank_); }

 private:
  std::shared_ptr<Hub> hub_;
  int rank_;
  int64_t splits_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> local_transports(int ranks) {
  LH_CHECK(ranks > 0, "comm", "a group of {} ranks", ranks);
  const auto hub = std::make_shared<Hub>(ranks);
  std::vector<std::unique_ptr<Transport>> transports;
  transports.reserve(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    transports.push_back(std::make_unique<LocalTransport>(hub, r));
  }
  return transports;
}

}  // namespace longhaul::comm
