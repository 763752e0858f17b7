#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::cluster {

/// An owned file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

/// An IPv4 or IPv6 address with its port.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t size);

  const sockaddr* get() const;
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  int port() const;
  void set_port(int port);
  /// True for 0.0.0.0 and ::, which stand for every interface.
  bool is_any() const;
  /// "10.77.0.3", "fe80::1%eth0": what getaddrinfo takes again.
  std::string host() const;
  /// "10.77.0.3:41234", "[::1]:41234".
  std::string to_text() const;

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// The addresses of a host name or of a number. TemporaryError where it has none: a name
/// that is not known yet may be later.
std::vector<SocketAddress> resolve(const std::string& host, int port);

/// An address of this machine: from the name of an interface ("eth0"), or from a host
/// name or number that is this machine's own. ConfigError for any other, and for those
/// that stand for every interface.
SocketAddress own_address(const std::string& interface_or_host);

/// The address under which this machine reaches `host`, and so the one of the interface
/// that the two share. TemporaryError where there is no way.
std::string own_address_towards(const std::string& host);

/// A listening socket at this address, which does not block. Port 0: the kernel's choice.
/// ConfigError where the address or the port cannot be had.
Descriptor listen_at(const SocketAddress& address);
/// The address that a socket is bound to.
SocketAddress bound_address(int fd);

/// A connection that is under way, which does not block; ready to be written to when it
/// has come about or failed (socket_error). Nothing where it fails at once, with `why`.
std::optional<Descriptor> start_connect(const SocketAddress& to, std::string& why);
/// Takes the error of a socket: 0 or an errno.
int socket_error(int fd);
/// Sends small messages at once, and lets the kernel notice a machine that is gone: after
/// about 20 seconds, whether it was sent to or only listened to.
void tune_connection(int fd);

enum class IoResult { Done, Later, Closed };
/// Reads what is there, up to the size of `into`; `count` says how much. Closed: the
/// other side has ended the connection, or it failed, with the words in `why`.
IoResult read_some(int fd, std::span<std::byte> into, size_t& count, std::string& why);
IoResult write_some(int fd, std::string_view bytes, size_t& count, std::string& why);

}  // namespace longhaul::cluster
