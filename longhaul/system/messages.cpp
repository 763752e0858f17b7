#include "longhaul/system/messages.h"

#include <sys/socket.h>

#include <cerrno>

namespace longhaul::system {

bool send_all(int socket, const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket, from, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* data, size_t size) {
  char* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(socket, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool send_text(int socket, const std::string& text) {
  const uint64_t size = text.size();
  return send_all(socket, &size, sizeof(size)) &&
         send_all(socket, text.data(), text.size());
}

bool receive_text(int socket, std::string& text, uint64_t limit) {
  uint64_t size = 0;
  if (!receive_all(socket, &size, sizeof(size)) || size > limit) return false;
  text.resize(size);
  return receive_all(socket, text.data(), text.size());
}

}  // namespace longhaul::system
