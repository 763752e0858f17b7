#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "longhaul/cluster/control/secret.h"

namespace longhaul::cluster {

// The control protocol works without sockets, since it takes bytes and gives bytes.
//
//   connecting side                      accepting side
//   "LHCTRL01", challenge (32)     ->
//                                  <-    "LHCTRL01", challenge (32), proof (32)
//   proof (32), stream header (24) ->
//                                  <-    stream header (24)
//
// A proof is BLAKE2b, keyed with the secret, over both challenges and the role's name.
// The keys of the two directions are made in the same way. Both challenges are fresh, so
// that a recorded session is worth nothing in another one. After the handshake each
// message is a length (u32, little-endian) and as many bytes of a crypto_secretstream
// (XChaCha20-Poly1305). The receiver notices a message that was changed, left out,
// doubled or moved, and also an end without a goodbye.

/// The longest message that can be sent or received.
inline constexpr size_t kMaxMessageBytes = size_t{4} << 20;
/// The area of the protocol's errors.
inline constexpr const char* kControlArea = "control";
/// The most bytes that are taken from a socket at once.
inline constexpr size_t kControlReadBytes = size_t{1} << 16;

enum class ControlRole { Connects, Accepts };

/// One side of one connection. Throws InputError for wrong bytes of the other side; the
/// session is then over, and its owner ends the connection.
class ControlSession {
 public:
  ControlSession(ControlRole role, const Secret& secret);
  ~ControlSession();
  ControlSession(ControlSession&&) noexcept;
  ControlSession& operator=(ControlSession&&) noexcept;

  /// Takes bytes of the other side, in pieces of any size. Keeps no more bytes than one
  /// message needs.
  void feed(std::span<const std::byte> bytes);
  /// Returns whether the other side has proved that it knows the secret. Only then
  /// messages can be sent.
  bool established() const;
  /// Returns whether the other side has said goodbye, after which nothing comes.
  bool ended() const;
  /// Returns the oldest message that has come and was not taken.
  std::optional<std::string> take_message();

  /// Queues a message. The session must be established and must not have said goodbye.
  void send(std::string_view message);
  /// Queues a goodbye, once.
  void say_goodbye();
  /// Returns the bytes for the other side; written(n) drops the first n of them.
  std::string_view output() const;
  void written(size_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::cluster
