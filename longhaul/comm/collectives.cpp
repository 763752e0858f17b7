#include "longhaul/comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <memory>
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
    scratch_ = std::make_shared_for_overwrite<std::byte[]>(slots * slot_bytes_);
  }

  int64_t chunk() const { return chunk_; }

  void receive(Round& round, int64_t index, int64_t count) const {
    for_each_peer(group_, [&](int peer) {
      round.recv(peer, slot(index, peer),
                 static_cast<size_t>(count) * dtype_size(dtype_));
    });
  }

  void reduce(int64_t index, const std::byte* own, std::byte* out, int64_t count) const {
    std::vector<const std::byte*> parts(static_cast<size_t>(group_.size));
    for (int r = 0; r < group_.size; ++r) {
      parts[static_cast<size_t>(r)] = r == group_.rank ? own : slot(index, r);
    }
    reduce_parts(parts, out, count, dtype_, op_);
  }

 private:
  std::byte* slot(int64_t index, int peer) const {
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
  std::shared_ptr<std::byte[]> scratch_;
};

int64_t chunks_of(int64_t count, int64_t chunk) { return (count + chunk - 1) / chunk; }

/// Small: gather everything everywhere, add at home.
Program one_round_all_reduce(GroupRank group, Buffer buffer, ReduceOp op) {
  std::vector<std::byte> room(buffer.bytes() * static_cast<size_t>(group.size));
  return [=, all = std::move(room)](Round& round, int64_t index) mutable {
    const size_t bytes = buffer.bytes();
    const auto slot = [&](int rank) {
      return all.data() + static_cast<size_t>(rank) * bytes;
    };
    if (index == 0) {
      for_each_peer(group, [&](int peer) { round.recv(peer, slot(peer), bytes); });
      for_each_peer(group, [&](int peer) { round.send(peer, bytes_of(buffer), bytes); });
      return true;
    }
    copy_bytes(slot(group.rank), bytes_of(buffer), bytes);
    std::vector<const std::byte*> parts;
    for (int r = 0; r < group.size; ++r) parts.push_back(slot(r));
    reduce_parts(parts, bytes_of(buffer), buffer.count, buffer.dtype, op);
    return false;
  };
}

/// Reduce-scatter and all-gather chunk by chunk: round i exchanges chunk i of every part
/// and hands out the finished chunk i - 1.
class AllReduce {
 public:
  AllReduce(GroupRank group, Buffer buffer, ReduceOp op, const CommOptions& options)
      : group_(group),
        buffer_(buffer),
        parts_(buffer.count, group.size),
        exchange_(group, buffer.dtype, op, parts_.length, options),
        chunks_(chunks_of(parts_.length, exchange_.chunk())) {}

  bool operator()(Round& round, int64_t index) const {
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
  void send_chunk(Round& round, int peer, int part, int64_t index) const {
    round.send(peer, chunk_at(part, index), chunk_bytes(part, index));
  }

  GroupRank group_;
  Buffer buffer_;
  Parts parts_;
  ChunkExchange exchange_;
  int64_t chunks_;
};

class ReduceScatter {
 public:
  ReduceScatter(GroupRank group, ConstBuffer in, Buffer out, ReduceOp op,
                const CommOptions& options)
      : group_(group),
        in_(in),
        out_(out),
        exchange_(group, in.dtype, op, out.count, options),
        chunks_(chunks_of(out.count, exchange_.chunk())) {}

  bool operator()(Round& round, int64_t index) const {
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
};

/// Short messages: a binomial tree, whose depth is the logarithm of the ranks.
Program tree_broadcast(GroupRank group, Buffer buffer, int root) {
  return [=](Round& round, int64_t index) {
    // Ranks counted from the root: a rank's parent lacks its lowest set bit.
    const int place = (group.rank - root + group.size) % group.size;
    const int lowest = place == 0 ? group.size : place & -place;
    const auto rank_at = [&](int at) { return (at + root) % group.size; };
    // The root has nothing to receive.
    const int64_t sending = place == 0 ? 0 : 1;
    if (index < sending) {
      round.recv(rank_at(place - lowest), bytes_of(buffer), buffer.bytes());
      return true;
    }
    if (index > sending) return false;
    for (int step = 1; step < lowest && place + step < group.size; step *= 2) {
      round.send(rank_at(place + step), bytes_of(buffer), buffer.bytes());
    }
    return true;
  };
}

/// Long messages: the root hands every rank one part, then all exchange their parts.
Program parts_broadcast(GroupRank group, Buffer buffer, int root) {
  return [=, parts = Parts(buffer.count, group.size)](Round& round, int64_t index) {
    const bool is_root = group.rank == root;
    const size_t element = dtype_size(buffer.dtype);
    const auto part = [&](int rank) {
      return bytes_of(buffer) + static_cast<size_t>(parts.begin(rank)) * element;
    };
    const auto bytes = [&](int rank) {
      return static_cast<size_t>(parts.size(rank)) * element;
    };
    if (index == 0) {
      if (!is_root) round.recv(root, part(group.rank), bytes(group.rank));
      for_each_peer(group, [&](int peer) {
        if (is_root) round.send(peer, part(peer), bytes(peer));
      });
    } else if (index == 1) {
      for_each_peer(group, [&](int peer) {
        if (!is_root) round.recv(peer, part(peer), bytes(peer));
        if (peer != root) round.send(peer, part(group.rank), bytes(group.rank));
      });
    }
    return index < 2;
  };
}

bool nothing(Round&, int64_t) { return false; }

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

Program all_reduce_program(GroupRank group, Buffer buffer, ReduceOp op,
                           const CommOptions& options) {
  if (group.size == 1 || buffer.count == 0) return nothing;
  if (buffer.bytes() * static_cast<size_t>(group.size) <= options.one_round_bytes) {
    return one_round_all_reduce(group, buffer, op);
  }
  return AllReduce(group, buffer, op, options);
}

Program reduce_scatter_program(GroupRank group, ConstBuffer in, Buffer out, ReduceOp op,
                               const CommOptions& options) {
  if (out.count == 0) return nothing;
  if (group.size == 1) return all_gather_program(group, in, out);
  return ReduceScatter(group, in, out, op, options);
}

Program all_gather_program(GroupRank group, ConstBuffer in, Buffer out) {
  return [=](Round& round, int64_t index) {
    if (index > 0) return false;
    const size_t bytes = in.bytes();
    const auto part = [&](int rank) {
      return bytes_of(out) + static_cast<size_t>(rank) * bytes;
    };
    copy_bytes(part(group.rank), bytes_of(in), bytes);
    for_each_peer(group, [&](int peer) { round.recv(peer, part(peer), bytes); });
    for_each_peer(group, [&](int peer) { round.send(peer, bytes_of(in), bytes); });
    return true;
  };
}

Program all_to_all_program(GroupRank group, ConstBuffer in, Buffer out) {
  return [=](Round& round, int64_t index) {
    if (index > 0) return false;
    const size_t bytes = in.bytes() / static_cast<size_t>(group.size);
    const auto offset = [&](int rank) { return static_cast<size_t>(rank) * bytes; };
    copy_bytes(bytes_of(out) + offset(group.rank), bytes_of(in) + offset(group.rank),
               bytes);
    for_each_peer(group, [&](int peer) {
      round.recv(peer, bytes_of(out) + offset(peer), bytes);
      round.send(peer, bytes_of(in) + offset(peer), bytes);
    });
    return true;
  };
}

Program broadcast_program(GroupRank group, Buffer buffer, int root,
                          const CommOptions& options) {
  if (group.size == 1) return nothing;
  if (group.size == 2 || buffer.bytes() <= options.one_round_bytes) {
    return tree_broadcast(group, buffer, root);
  }
  return parts_broadcast(group, buffer, root);
}

/// Dissemination: after round i everybody has heard, at second hand, of 2^(i+1) ranks.
Program barrier_program(GroupRank group) {
  return [=](Round& round, int64_t index) {
    const int64_t distance = int64_t{1} << index;
    if (distance >= group.size) return false;
    const auto step = static_cast<int>(distance);
    round.signal((group.rank + step) % group.size,
                 (group.rank - step + group.size) % group.size);
    return true;
  };
}

Program send_recv_program(std::vector<Transfer> transfers) {
  return [transfers = std::move(transfers)](Round& round, int64_t index) {
    if (index > 0) return false;
    for (const Transfer& t : transfers) {
      if (t.kind == Transfer::Kind::Recv) {
        round.recv(t.peer, bytes_of(t.buffer), t.buffer.bytes());
      }
    }
    for (const Transfer& t : transfers) {
      if (t.kind == Transfer::Kind::Send) {
        round.send(t.peer, bytes_of(t.buffer), t.buffer.bytes());
      }
    }
    return true;
  };
}

}  // namespace longhaul::comm
