#include "longhaul/comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "longhaul/comm/reduce.h"

namespace longhaul::comm {
namespace {

const std::byte* bytes_of(const ConstBuffer& b) {
  return static_cast<const std::byte*>(b.data);
}
std::byte* bytes_of(const Buffer& b) { return static_cast<std::byte*>(b.data); }

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from && bytes != 0) std::memmove(to, from, bytes);
}

/// The peers of a rank, each rank in another order, so that no rank is everybody's first.
template <typename F>
void for_each_peer(GroupRank group, const F& f) {
  for (int i = 1; i < group.size; ++i) f((group.rank + i) % group.size);
}

/// `count` elements cut into as many parts as ranks, on edges of 16 elements; later parts
/// may be empty.
struct Parts {
  Parts(int64_t count_, int ranks)
      : count(count_),
        length(((count_ + ranks - 1) / ranks + kReducePartAlign - 1) / kReducePartAlign *
               kReducePartAlign) {}
  int64_t begin(int rank) const { return std::min(count, rank * length); }
  int64_t size(int rank) const { return begin(rank + 1) - begin(rank); }
  int64_t count;
  int64_t length;
};

class AllGather : public Program {
 public:
  AllGather(GroupRank group, ConstBuffer in, Buffer out)
      : group_(group), in_(in), out_(out) {}

  bool next(Round& round) override {
    if (posted_) return false;
    posted_ = true;
    const size_t bytes = in_.bytes();
    const auto part = [&](int rank) {
      return bytes_of(out_) + static_cast<size_t>(rank) * bytes;
    };
    copy_bytes(part(group_.rank), bytes_of(in_), bytes);
    for_each_peer(group_, [&](int peer) { round.recv(peer, part(peer), bytes); });
    for_each_peer(group_, [&](int peer) { round.send(peer, bytes_of(in_), bytes); });
    return true;
  }

 private:
  GroupRank group_;
  ConstBuffer in_;
  Buffer out_;
  bool posted_ = false;
};

class AllToAll : public Program {
 public:
  AllToAll(GroupRank group, ConstBuffer in, Buffer out)
      : group_(group), in_(in), out_(out) {}

  bool next(Round& round) override {
    if (posted_) return false;
    posted_ = true;
    const size_t bytes = in_.bytes() / static_cast<size_t>(group_.size);
    const auto offset = [&](int rank) { return static_cast<size_t>(rank) * bytes; };
    copy_bytes(bytes_of(out_) + offset(group_.rank), bytes_of(in_) + offset(group_.rank),
               bytes);
    for_each_peer(group_, [&](int peer) {
      round.recv(peer, bytes_of(out_) + offset(peer), bytes);
      round.send(peer, bytes_of(in_) + offset(peer), bytes);
    });
    return true;
  }

 private:
  GroupRank group_;
  ConstBuffer in_;
  Buffer out_;
  bool posted_ = false;
};

/// The reducing half of a reduction: every rank sends its chunk of each part to the
/// part's owner, who adds the chunks in rank order. Two halves of scratch: a chunk can be
/// on its way while the one before is added.
class ChunkExchange {
 public:
  ChunkExchange(GroupRank group, DType dtype, ReduceOp op, int64_t longest_part,
                const CommOptions& options)
      : group_(group), dtype_(dtype), op_(op) {
    const auto slots = static_cast<size_t>(2 * std::max(1, group.size - 1));
    const auto fitting =
        static_cast<int64_t>(options.scratch_bytes / slots / dtype_size(dtype) / 16 * 16);
    chunk_ = std::min(std::max<int64_t>(fitting, 16), std::max<int64_t>(longest_part, 1));
    slot_bytes_ = static_cast<size_t>(chunk_) * dtype_size(dtype);
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(slots * slot_bytes_);
  }

  int64_t chunk() const { return chunk_; }

  void receive(Round& round, int64_t index, int64_t count) {
    for_each_peer(group_, [&](int peer) {
      round.recv(peer, slot(index, peer),
                 static_cast<size_t>(count) * dtype_size(dtype_));
    });
  }

  void reduce(int64_t index, const std::byte* own, std::byte* out, int64_t count) {
    std::vector<const std::byte*> parts(static_cast<size_t>(group_.size));
    for (int r = 0; r < group_.size; ++r) {
      parts[static_cast<size_t>(r)] = r == group_.rank ? own : slot(index, r);
    }
    reduce_parts(parts, out, count, dtype_, op_);
  }

 private:
  std::byte* slot(int64_t index, int peer) {
    const int64_t half = index % 2;
    const int place = peer < group_.rank ? peer : peer - 1;
    return scratch_.get() +
           static_cast<size_t>(half * (group_.size - 1) + place) * slot_bytes_;
  }

  GroupRank group_;
  DType dtype_;
  ReduceOp op_;
  int64_t chunk_ = 0;
  size_t slot_bytes_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
};

int64_t chunks_of(int64_t count, int64_t chunk) { return (count + chunk - 1) / chunk; }

/// Small: gather everything everywhere, add at home.
class OneRoundAllReduce : public Program {
 public:
  OneRoundAllReduce(GroupRank group, Buffer buffer, ReduceOp op)
      : group_(group), buffer_(buffer), op_(op), all_(buffer.bytes() * ranks()) {}

  bool next(Round& round) override {
    const size_t bytes = buffer_.bytes();
    const auto slot = [&](int rank) {
      return all_.data() + static_cast<size_t>(rank) * bytes;
    };
    if (!posted_) {
      posted_ = true;
      for_each_peer(group_, [&](int peer) { round.recv(peer, slot(peer), bytes); });
      for_each_peer(group_,
                    [&](int peer) { round.send(peer, bytes_of(buffer_), bytes); });
      return true;
    }
    copy_bytes(slot(group_.rank), bytes_of(buffer_), bytes);
    std::vector<const std::byte*> parts;
    for (int r = 0; r < group_.size; ++r) parts.push_back(slot(r));
    reduce_parts(parts, bytes_of(buffer_), buffer_.count, buffer_.dtype, op_);
    return false;
  }

 private:
  size_t ranks() const { return static_cast<size_t>(group_.size); }
  GroupRank group_;
  Buffer buffer_;
  ReduceOp op_;
  std::vector<std::byte> all_;
  bool posted_ = false;
};

/// Reduce-scatter and all-gather chunk by chunk: round i exchanges chunk i of every part
/// and hands out the finished chunk i - 1.
class AllReduce : public Program {
 public:
  AllReduce(GroupRank group, Buffer buffer, ReduceOp op, const CommOptions& options)
      : group_(group),
        buffer_(buffer),
        parts_(buffer.count, group.size),
        exchange_(group, buffer.dtype, op, parts_.length, options),
        chunks_(chunks_of(parts_.length, exchange_.chunk())) {}

  bool next(Round& round) override {
    const int64_t index = index_++;
    if (index > chunks_) return false;
    if (index < chunks_) {
      exchange_.receive(round, index, chunk_size(group_.rank, index));
      for_each_peer(group_, [&](int peer) { send_chunk(round, peer, peer, index); });
    }
    if (index > 0) {
      const int64_t done = index - 1;
      exchange_.reduce(done, chunk_at(group_.rank, done), chunk_at(group_.rank, done),
                       chunk_size(group_.rank, done));
      for_each_peer(group_, [&](int peer) {
        round.recv(peer, chunk_at(peer, done), chunk_bytes(peer, done));
      });
      for_each_peer(group_,
                    [&](int peer) { send_chunk(round, peer, group_.rank, done); });
    }
    return true;
  }

 private:
  int64_t chunk_begin(int part, int64_t index) const {
    return std::min(parts_.begin(part) + index * exchange_.chunk(),
                    parts_.begin(part + 1));
  }
  int64_t chunk_size(int part, int64_t index) const {
    return chunk_begin(part, index + 1) - chunk_begin(part, index);
  }
  size_t chunk_bytes(int part, int64_t index) const {
    return static_cast<size_t>(chunk_size(part, index)) * dtype_size(buffer_.dtype);
  }
  std::byte* chunk_at(int part, int64_t index) const {
    return bytes_of(buffer_) +
           static_cast<size_t>(chunk_begin(part, index)) * dtype_size(buffer_.dtype);
  }
  void send_chunk(Round& round, int peer, int part, int64_t index) {
    round.send(peer, chunk_at(part, index), chunk_bytes(part, index));
  }

  GroupRank group_;
  Buffer buffer_;
  Parts parts_;
  ChunkExchange exchange_;
  int64_t chunks_;
  int64_t index_ = 0;
};

class ReduceScatter : public Program {
 public:
  ReduceScatter(GroupRank group, ConstBuffer in, Buffer out, ReduceOp op,
                const CommOptions& options)
      : group_(group),
        in_(in),
        out_(out),
        exchange_(group, in.dtype, op, out.count, options),
        chunks_(chunks_of(out.count, exchange_.chunk())) {}

  bool next(Round& round) override {
    const int64_t index = index_++;
    if (index > chunks_) return false;
    const size_t element = dtype_size(in_.dtype);
    if (index < chunks_) {
      const int64_t count = size(index);
      exchange_.receive(round, index, count);
      for_each_peer(group_, [&](int peer) {
        round.send(peer, part(peer, index), static_cast<size_t>(count) * element);
      });
    }
    if (index > 0) {
      std::byte* out = bytes_of(out_) + static_cast<size_t>(begin(index - 1)) * element;
      exchange_.reduce(index - 1, part(group_.rank, index - 1), out, size(index - 1));
    }
    return true;
  }

 private:
  int64_t begin(int64_t index) const {
    return std::min(index * exchange_.chunk(), out_.count);
  }
  int64_t size(int64_t index) const { return begin(index + 1) - begin(index); }
  const std::byte* part(int rank, int64_t index) const {
    return bytes_of(in_) +
           static_cast<size_t>(rank * out_.count + begin(index)) * dtype_size(in_.dtype);
  }

  GroupRank group_;
  ConstBuffer in_;
  Buffer out_;
  ChunkExchange exchange_;
  int64_t chunks_;
  int64_t index_ = 0;
};

/// Short messages: a binomial tree, whose depth is the logarithm of the ranks.
class TreeBroadcast : public Program {
 public:
  TreeBroadcast(GroupRank group, Buffer buffer, int root)
      : group_(group), buffer_(buffer), root_(root) {}

  bool next(Round& round) override {
    // Ranks counted from the root: a rank's parent lacks its lowest set bit.
    const int place = (group_.rank - root_ + group_.size) % group_.size;
    const int lowest = place == 0 ? group_.size : place & -place;
    if (round_ == 0) {
      ++round_;
      if (place != 0) {
        round.recv(rank_at(place - lowest), bytes_of(buffer_), buffer_.bytes());
        return true;
      }
    }
    if (round_++ != 1) return false;
    for (int step = 1; step < lowest && place + step < group_.size; step *= 2) {
      round.send(rank_at(place + step), bytes_of(buffer_), buffer_.bytes());
    }
    return true;
  }

 private:
  int rank_at(int place) const { return (place + root_) % group_.size; }
  GroupRank group_;
  Buffer buffer_;
  int root_;
  int round_ = 0;
};

/// Long messages: the root hands every rank one part, then all exchange their parts.
class PartsBroadcast : public Program {
 public:
  PartsBroadcast(GroupRank group, Buffer buffer, int root)
      : group_(group), buffer_(buffer), root_(root), parts_(buffer.count, group.size) {}

  bool next(Round& round) override {
    const bool is_root = group_.rank == root_;
    const int step = step_++;
    if (step == 0) {
      if (!is_root) round.recv(root_, part(group_.rank), bytes(group_.rank));
      for_each_peer(group_, [&](int peer) {
        if (is_root) round.send(peer, part(peer), bytes(peer));
      });
    } else if (step == 1) {
      for_each_peer(group_, [&](int peer) {
        if (!is_root) round.recv(peer, part(peer), bytes(peer));
        if (peer != root_) round.send(peer, part(group_.rank), bytes(group_.rank));
      });
    }
    return step < 2;
  }

 private:
  std::byte* part(int rank) const {
    return bytes_of(buffer_) +
           static_cast<size_t>(parts_.begin(rank)) * dtype_size(buffer_.dtype);
  }
  size_t bytes(int rank) const {
    return static_cast<size_t>(parts_.size(rank)) * dtype_size(buffer_.dtype);
  }
  GroupRank group_;
  Buffer buffer_;
  int root_;
  Parts parts_;
  int step_ = 0;
};

/// Dissemination: after round i everybody has heard, at second hand, of 2^(i+1) ranks.
class Barrier : public Program {
 public:
  explicit Barrier(GroupRank group) : group_(group) {}

  bool next(Round& round) override {
    if (distance_ >= group_.size) return false;
    round.signal((group_.rank + distance_) % group_.size,
                 (group_.rank - distance_ + group_.size) % group_.size);
    distance_ *= 2;
    return true;
  }

 private:
  GroupRank group_;
  int distance_ = 1;
};

class SendRecv : public Program {
 public:
  explicit SendRecv(std::vector<Transfer> transfers) : transfers_(std::move(transfers)) {}

  bool next(Round& round) override {
    if (posted_) return false;
    posted_ = true;
    for (const Transfer& t : transfers_) {
      if (t.kind == Transfer::Kind::Recv) {
        round.recv(t.peer, bytes_of(t.buffer), t.buffer.bytes());
      }
    }
    for (const Transfer& t : transfers_) {
      if (t.kind == Transfer::Kind::Send) {
        round.send(t.peer, bytes_of(t.buffer), t.buffer.bytes());
      }
    }
    return true;
  }

 private:
  std::vector<Transfer> transfers_;
  bool posted_ = false;
};

class Nothing : public Program {
 public:
  bool next(Round&) override { return false; }
};

}  // namespace

void Round::send(int peer, const std::byte* data, size_t bytes) {
  tally_.sent(bytes);
  for (size_t begin = 0; begin < bytes; begin += max_message_) {
    batch_.send(peer, data + begin, std::min(max_message_, bytes - begin), tag_);
  }
}

void Round::recv(int peer, std::byte* data, size_t bytes) {
  for (size_t begin = 0; begin < bytes; begin += max_message_) {
    batch_.recv(peer, data + begin, std::min(max_message_, bytes - begin), tag_);
  }
}

void Round::signal(int to, int from) {
  batch_.recv(from, nullptr, 0, tag_);
  batch_.send(to, nullptr, 0, tag_);
}

std::unique_ptr<Program> all_reduce_program(GroupRank group, Buffer buffer, ReduceOp op,
                                            const CommOptions& options) {
  if (group.size == 1 || buffer.count == 0) return std::make_unique<Nothing>();
  if (buffer.bytes() * static_cast<size_t>(group.size) <= options.one_round_bytes) {
    return std::make_unique<OneRoundAllReduce>(group, buffer, op);
  }
  return std::make_unique<AllReduce>(group, buffer, op, options);
}

std::unique_ptr<Program> reduce_scatter_program(GroupRank group, ConstBuffer in,
                                                Buffer out, ReduceOp op,
                                                const CommOptions& options) {
  if (out.count == 0) return std::make_unique<Nothing>();
  if (group.size == 1) return std::make_unique<AllGather>(group, in, out);
  return std::make_unique<ReduceScatter>(group, in, out, op, options);
}

std::unique_ptr<Program> all_gather_program(GroupRank group, ConstBuffer in, Buffer out) {
  return std::make_unique<AllGather>(group, in, out);
}

std::unique_ptr<Program> all_to_all_program(GroupRank group, ConstBuffer in, Buffer out) {
  return std::make_unique<AllToAll>(group, in, out);
}

std::unique_ptr<Program> broadcast_program(GroupRank group, Buffer buffer, int root,
                                           const CommOptions& options) {
  if (group.size == 1) return std::make_unique<Nothing>();
  if (group.size == 2 || buffer.bytes() <= options.one_round_bytes) {
    return std::make_unique<TreeBroadcast>(group, buffer, root);
  }
  return std::make_unique<PartsBroadcast>(group, buffer, root);
}

std::unique_ptr<Program> barrier_program(GroupRank group) {
  return std::make_unique<Barrier>(group);
}

std::unique_ptr<Program> send_recv_program(std::vector<Transfer> transfers) {
  return std::make_unique<SendRecv>(std::move(transfers));
}

}  // namespace longhaul::comm
