#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::cluster {

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
  /// Returns "10.77.0.3", "fe80::1%eth0": a form that getaddrinfo takes.
  std::string host() const;
  /// Returns "10.77.0.3:41234", "[::1]:41234".
  std::string to_text() const;

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// Returns whether this can be a host's name: at most 253 letters, digits, '-', '_' and
/// '.', of which the first is no '-'.
bool is_host_name(std::string_view name);

/// Returns the addresses of a host name or of a numeric address. Throws TemporaryError if
/// there is none: the name may become known later.
std::vector<SocketAddress> resolve(const std::string& host, int port);

/// Returns the address of this machine on the interface that leads to `host`. Throws
/// TemporaryError if no route leads there.
std::string own_address_towards(const std::string& host);

/// Returns a listening socket at this address, which does not block. With port 0 the
/// kernel chooses the port. Throws ConfigError if the address or the port cannot be had.
Descriptor listen_at(const SocketAddress& address);
/// Returns the address to which a socket is bound.
SocketAddress bound_address(int fd);

/// Begins to connect, without blocking. The socket is ready to be written to when the
/// connection stands or has failed (socket_error). Returns nothing, with `why`, if it
/// fails at once.
std::optional<Descriptor> start_connect(const SocketAddress& to, std::string& why);
/// Takes and returns the error of a socket: 0 or an errno.
int socket_error(int fd);
/// Has small messages sent at once, and has the kernel notice a machine that is gone,
/// after about 8 seconds, whether this side sends or only listens.
void tune_connection(int fd);

enum class IoResult { Done, Later, Closed };
/// Reads as much as is possible now; `count` receives the number of bytes. The result
/// Closed means that the other side has ended the connection or that the connection has
/// failed, as `why` says.
IoResult read_some(int fd, std::span<std::byte> into, size_t& count, std::string& why);
/// Writes as much as is possible now, with the results of read_some().
IoResult write_some(int fd, std::string_view bytes, size_t& count, std::string& why);

}  // namespace longhaul::cluster
