#include "longhaul/cluster/control/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "longhaul/base/error.h"
#include "longhaul/base/refused.h"

namespace longhaul::cluster {
namespace {

constexpr const char* kArea = "control";
constexpr int kBacklog = 1024;
/// Any port serves to find the way to a host, since nothing is sent.
constexpr int kDiscardPort = 9;

struct FreeInfo {
  void operator()(addrinfo* info) const { ::freeaddrinfo(info); }
};
std::string words(int error) { return std::strerror(error); }

bool option(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

IoResult after_error(int error, std::string& why) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return IoResult::Later;
  why = words(error);
  return IoResult::Closed;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t size) : size_(size) {
  LH_CHECK(size <= sizeof(storage_), kArea, "an address of {} bytes", size);
  std::memcpy(&storage_, address, size);
}

const sockaddr* SocketAddress::get() const {
  return reinterpret_cast<const sockaddr*>(&storage_);
}

// set_port and port need the port at the same place in both families.
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

int SocketAddress::port() const {
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

void SocketAddress::set_port(int port) {
  reinterpret_cast<sockaddr_in*>(&storage_)->sin_port =
      htons(static_cast<uint16_t>(port));
}

std::string SocketAddress::host() const {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(get(), size_, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) !=
      0) {
    return "?";
  }
  return text.data();
}

std::string SocketAddress::to_text() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host(), port())
                              : fmt::format("{}:{}", host(), port());
}

bool is_host_name(std::string_view name) {
  constexpr size_t kMostName = 253;  // RFC 1035
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
  return !name.empty() && name.size() <= kMostName && name.front() != '-' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

std::vector<SocketAddress> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int wrong = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (wrong != 0) {
    fail_temporary(kArea, "the host name '{}' has no address: {}", host,
                   ::gai_strerror(wrong));
  }
  const std::unique_ptr<addrinfo, FreeInfo> owner(list);
  std::vector<SocketAddress> found;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    found.emplace_back(one->ai_addr, one->ai_addrlen);
    found.back().set_port(port);
  }
  return found;
}

std::string own_address_towards(const std::string& host) {
  std::string why = "no address";
  for (const SocketAddress& to : resolve(host, kDiscardPort)) {
    const Descriptor socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.is_open() && ::connect(socket.get(), to.get(), to.size()) == 0) {
      return bound_address(socket.get()).host();
    }
    why = words(errno);
  }
  fail_temporary(kArea, "'{}' cannot be reached from this machine: {}", host, why);
}

Descriptor listen_at(const SocketAddress& address) {
  Descriptor socket(
      ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int error = errno;
  if (!socket.is_open() && !limits_reached(error).empty()) {
    throw refused(kArea, "socket", error);
  }
  const bool good = socket.is_open() &&
                    option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1) &&
                    ::bind(socket.get(), address.get(), address.size()) == 0 &&
                    ::listen(socket.get(), kBacklog) == 0;
  if (!good) {
    fail_config(kArea, "cannot listen at {}: {}", address.to_text(), words(errno));
  }
  return socket;
}

SocketAddress bound_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  const int wrong = ::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  LH_CHECK(wrong == 0, kArea, "getsockname: {}", words(errno));
  return {reinterpret_cast<const sockaddr*>(&storage), size};
}

std::optional<Descriptor> start_connect(const SocketAddress& to, std::string& why) {
  Descriptor socket(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.is_open() && (::connect(socket.get(), to.get(), to.size()) == 0 ||
                           errno == EINPROGRESS || errno == EINTR)) {
    tune_connection(socket.get());
    return socket;
  }
  why = words(errno);
  return std::nullopt;
}

int socket_error(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void tune_connection(int fd) {
  // A lost machine says nothing. The kernel gives the connection up after 8 s, as long as
  // the supervisor waits for an agent's report. If a kernel lacks one of these options,
  // the channel still works.
  option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 4);
  option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  option(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
  option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 8000);
}

IoResult read_some(int fd, std::span<std::byte> into, size_t& count, std::string& why) {
  const ssize_t got = ::recv(fd, into.data(), into.size(), 0);
  count = got > 0 ? static_cast<size_t>(got) : 0;
  if (got > 0) return IoResult::Done;
  if (got < 0) return after_error(errno, why);
  why = "the other side closed it";
  return IoResult::Closed;
}

IoResult write_some(int fd, std::string_view bytes, size_t& count, std::string& why) {
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  count = sent > 0 ? static_cast<size_t>(sent) : 0;
  return sent >= 0 ? IoResult::Done : after_error(errno, why);
}

}  // namespace longhaul::cluster
