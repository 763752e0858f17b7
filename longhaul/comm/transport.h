#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace longhaul::comm {

/// A set of started messages that end together. Destroying it never waits.
class Batch {
 public:
  virtual ~Batch() = default;
  /// `data` stays unwritten until test() is true. Zero bytes are sent as well.
  virtual void send(int peer, const void* data, size_t bytes, int tag) = 0;
  /// Exactly `bytes` must come; anything else throws.
  virtual void recv(int peer, void* data, size_t bytes, int tag) = 0;
  /// Drives progress; true when every message has ended, and the batch is empty again.
  virtual bool test() = 0;
};

/// What a backend of the staged communicator supplies: messages between the ranks of one
/// group. Between two ranks, messages with the same tag arrive in the order of the calls.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<Batch> open() = 0;
  /// The group of `members` (ranks of this group, in their new order) that holds this
  /// rank. All ranks call it at the same time, each with its own group; `color` tells
  /// the groups apart.
  virtual std::unique_ptr<Transport> split(int color, std::span<const int> members) = 0;
  virtual void abort(int exit_code) = 0;
};

/// Tags below this are for the staged communicator's use.
inline constexpr int kTagLimit = 32768;

}  // namespace longhaul::comm
