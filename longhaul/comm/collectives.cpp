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

/// Calls f with each peer of a rank. Each rank begins with another peer, so that not all
/// ranks send to the same peer first.
template <typename F>
void for_each_peer(GroupRank group, const F& f) {
  for (int i = 1; i < group.size; ++i) f((group.rank + i) % group.size);
}

using Parts = layout::BufferParts;

/// The owner's side of a reduction: receives a chunk of this rank's part from every peer
/// and adds the chunks in rank order. There are two halves of scratch memory, so that one
/// chunk can be on its way while the chunk before it is added.
class ChunkExchange {
 public:
  ChunkExchange(GroupRank group, format::DType dtype, ReduceOp op, int64_t longest_part,
                const CommOptions& options)
      : group_(group), dtype_(dtype), op_(op) {
    const auto slots = static_cast<size_t>(2 * std::max(1, group.size - 1));
    const auto fitting = static_cast<int64_t>(options.scratch_bytes / slots /
                                              format::dtype_size(dtype) / 16 * 16);
    chunk_ = std::min(std::max<int64_t>(fitting, 16), std::max<int64_t>(longest_part, 1));
    slot_bytes_ = static_cast<size_t>(chunk_) * format::dtype_size(dtype);
    scratch_ = std::make_shared_for_overwrite<std::byte[]>(slots * slot_bytes_);
  }

  int64_t chunk() const { return chunk_; }

  void receive(Round& round, int64_t index, int64_t count) const {
    for_each_peer(group_, [&](int peer) {
      round.recv(peer, slot(index, peer),
                 static_cast<size_t>(count) * format::dtype_size(dtype_));
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
  format::DType dtype_;
  ReduceOp op_;
  int64_t chunk_ = 0;
  size_t slot_bytes_ = 0;
  std::shared_ptr<std::byte[]> scratch_;
};

/// Reduces a small buffer by a tree: up to rank 0, and the result down again. Any order
/// gives the same maximum, and the same sum of integers, so these are reduced on the way.
/// A sum of floating-point numbers depends on the order: the tree carries the numbers of
/// each rank to rank 0, which adds them in rank order.
class TreeReduction {
 public:
  TreeReduction(GroupRank group, const Request& request)
      : buffer_(request.out),
        op_(request.op),
        tree_{group.rank, group.size},
        on_the_way_(request.op == ReduceOp::Max ||
                    request.out.dtype == format::DType::I64),
        slots_(on_the_way_ ? 1 + tree_.children() : tree_.span()),
        room_(buffer_.bytes() * static_cast<size_t>(slots_)) {}

  bool operator()(Round& round, int64_t index) {
    if (index == 0) {
      gather(round);
    } else if (index == 1 && !tree_.is_root()) {
      if (on_the_way_) reduce(slot(0));
      const auto parent = static_cast<int>(tree_.parent());
      round.send(parent, slot(0), buffer_.bytes() * sent_up(tree_));
      round.recv(parent, bytes_of(buffer_), buffer_.bytes());
    } else if (index == (tree_.is_root() ? 1 : 2)) {
      if (tree_.is_root()) reduce(bytes_of(buffer_));
      for (int64_t i = 0; i < tree_.children(); ++i) {
        round.send(static_cast<int>(tree_.child(i).place), bytes_of(buffer_),
                   buffer_.bytes());
      }
    } else {
      return false;
    }
    return true;
  }

 private:
  /// Posts what comes from the children, behind this rank's own numbers in slot 0. The
  /// slots are in rank order.
  void gather(Round& round) {
    copy_bytes(slot(0), bytes_of(buffer_), buffer_.bytes());
    for (int64_t i = 0; i < tree_.children(); ++i) {
      const layout::TreePlace child = tree_.child(i);
      round.recv(static_cast<int>(child.place),
                 slot(on_the_way_ ? 1 + i : child.place - tree_.place),
                 buffer_.bytes() * sent_up(child));
    }
  }

  /// Returns how many buffers a rank sends to its parent.
  size_t sent_up(const layout::TreePlace& from) const {
    return on_the_way_ ? 1 : static_cast<size_t>(from.span());
  }

  std::byte* slot(int64_t at) {
    return room_.data() + static_cast<size_t>(at) * buffer_.bytes();
  }

  void reduce(std::byte* out) {
    std::vector<const std::byte*> parts;
    for (int64_t i = 0; i < slots_; ++i) parts.push_back(slot(i));
    reduce_parts(parts, out, buffer_.count, buffer_.dtype, op_);
  }

  Buffer buffer_;
  ReduceOp op_;
  layout::TreePlace tree_;
  bool on_the_way_;
  int64_t slots_;
  std::vector<std::byte> room_;
};

/// A reduction chunk by chunk: round i exchanges chunk i of every part, and adds chunk
/// i - 1 of this rank's part. An all-reduce adds in place and hands out what it has
/// added.
class ChunkedReduction {
 public:
  /// Begins a reduction of `request.in`, which `parts` cut. A reduce_scatter puts this
  /// rank's part into `request.out`.
  ChunkedReduction(GroupRank group, const Request& request, Parts parts,
                   const CommOptions& options)
      : group_(group),
        in_(request.in),
        out_(request.out),
        hands_out_(request.verb == Verb::AllReduce),
        parts_(parts),
        exchange_(group, in_.dtype, request.op, parts.length, options),
        chunks_((parts.length + exchange_.chunk() - 1) / exchange_.chunk()) {}

  bool operator()(Round& round, int64_t index) const {
    if (index > chunks_) return false;
    const int mine = group_.rank;
    if (index < chunks_) {
      exchange_.receive(round, index, size(mine, index));
      for_each_peer(group_, [&](int peer) {
        round.send(peer, bytes_of(in_) + offset(peer, index), bytes(peer, index));
      });
    }
    if (index == 0) return true;
    const int64_t done = index - 1;
    std::byte* result =
        bytes_of(out_) + (offset(mine, done) - (hands_out_ ? 0 : offset(mine, 0)));
    exchange_.reduce(done, bytes_of(in_) + offset(mine, done), result, size(mine, done));
    if (!hands_out_) return true;
    for_each_peer(group_, [&](int peer) {
      round.recv(peer, bytes_of(out_) + offset(peer, done), bytes(peer, done));
    });
    for_each_peer(group_, [&](int peer) { round.send(peer, result, bytes(mine, done)); });
    return true;
  }

 private:
  int64_t begin(int part, int64_t index) const {
    return std::min(parts_.begin(part) + index * exchange_.chunk(),
                    parts_.begin(part + 1));
  }
  int64_t size(int part, int64_t index) const {
    return begin(part, index + 1) - begin(part, index);
  }
  size_t bytes(int part, int64_t index) const {
    return static_cast<size_t>(size(part, index)) * format::dtype_size(in_.dtype);
  }
  size_t offset(int part, int64_t index) const {
    return static_cast<size_t>(begin(part, index)) * format::dtype_size(in_.dtype);
  }

  GroupRank group_;
  ConstBuffer in_;
  Buffer out_;
  bool hands_out_;
  Parts parts_;
  ChunkExchange exchange_;
  int64_t chunks_;
};

/// For short messages: a tree, whose depth is the logarithm of the ranks.
Program tree_broadcast(GroupRank group, Buffer buffer, int root) {
  return [=](Round& round, int64_t index) {
    const layout::TreePlace tree{(group.rank - root + group.size) % group.size,
                                 group.size};
    const auto rank_at = [&](int64_t place) {
      return static_cast<int>((place + root) % group.size);
    };
    // The root has nothing to receive.
    const int64_t sending = tree.is_root() ? 0 : 1;
    if (index < sending) {
      round.recv(rank_at(tree.parent()), bytes_of(buffer), buffer.bytes());
      return true;
    }
    if (index > sending) return false;
    for (int64_t i = 0; i < tree.children(); ++i) {
      round.send(rank_at(tree.child(i).place), bytes_of(buffer), buffer.bytes());
    }
    return true;
  };
}

/// For long messages: the root sends one part to every rank, then all exchange their
/// parts.
Program parts_broadcast(GroupRank group, Buffer buffer, int root) {
  return [=, parts = Parts::of(buffer.count, group.size)](Round& round, int64_t index) {
    const bool is_root = group.rank == root;
    const size_t element = format::dtype_size(buffer.dtype);
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

Program all_gather(GroupRank group, ConstBuffer in, Buffer out) {
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

Program all_reduce(GroupRank group, const Request& request, const CommOptions& options) {
  const Buffer& buffer = request.out;
  if (group.size == 1 || buffer.count == 0) return nothing;
  // Tensors have smaller elements. Layouts reckon that every rank sends as much of them.
  const bool numbers =
      format::dtype_size(buffer.dtype) == static_cast<size_t>(layout::kHostNumberBytes);
  if (numbers && buffer.bytes() <= options.tree_bytes) {
    return TreeReduction(group, request);
  }
  return ChunkedReduction(group, request, Parts::of(buffer.count, group.size), options);
}

Program reduce_scatter(GroupRank group, const Request& request,
                       const CommOptions& options) {
  if (request.out.count == 0) return nothing;
  if (group.size == 1) return all_gather(group, request.in, request.out);
  return ChunkedReduction(group, request, {request.in.count, request.out.count}, options);
}

Program all_to_all(GroupRank group, ConstBuffer in, Buffer out) {
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

Program broadcast(GroupRank group, Buffer buffer, int root, const CommOptions& options) {
  if (group.size == 1) return nothing;
  if (group.size == 2 || buffer.bytes() <= options.tree_bytes) {
    return tree_broadcast(group, buffer, root);
  }
  return parts_broadcast(group, buffer, root);
}

/// Returns the dissemination barrier: after round i every rank has heard, directly or
/// through others, of 2^(i+1) ranks.
Program barrier(GroupRank group) {
  return [=](Round& round, int64_t index) {
    const int64_t distance = int64_t{1} << index;
    if (distance >= group.size) return false;
    const auto step = static_cast<int>(distance);
    round.signal((group.rank + step) % group.size,
                 (group.rank - step + group.size) % group.size);
    return true;
  };
}

Program send_recv(std::vector<Transfer> transfers) {
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

}  // namespace

void Round::send(int peer, const std::byte* data, size_t bytes) {
  tally_.sent(bytes);
  for (size_t begin = 0; begin < bytes; begin += max_message_) {
    tally_.message();
    batch_.send(peer, data + begin, std::min(max_message_, bytes - begin), tag_);
  }
}

void Round::recv(int peer, std::byte* data, size_t bytes) {
  for (size_t begin = 0; begin < bytes; begin += max_message_) {
    batch_.recv(peer, data + begin, std::min(max_message_, bytes - begin), tag_);
  }
}

void Round::signal(int to, int from) {
  tally_.message();
  batch_.recv(from, nullptr, 0, tag_);
  batch_.send(to, nullptr, 0, tag_);
}

Program program_of(Request request, GroupRank group, const CommOptions& options) {
  switch (request.verb) {
    case Verb::AllReduce:
      return all_reduce(group, request, options);
    case Verb::AllGather:
      return all_gather(group, request.in, request.out);
    case Verb::ReduceScatter:
      return reduce_scatter(group, request, options);
    case Verb::AllToAll:
      return all_to_all(group, request.in, request.out);
    case Verb::Broadcast:
      return broadcast(group, request.out, request.root, options);
    case Verb::SendRecv:
      return send_recv(std::move(request.transfers));
    case Verb::Barrier:
      break;
  }
  return barrier(group);
}

}  // namespace longhaul::comm
