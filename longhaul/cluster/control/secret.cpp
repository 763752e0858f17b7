#include "longhaul/cluster/control/secret.h"

#include <sodium.h>
#include <unistd.h>

#include <cerrno>

#include "longhaul/base/error.h"

namespace longhaul::cluster {

Secret::Secret() {
  LH_CHECK(::sodium_init() >= 0, "control", "libsodium does not start");
}

Secret::~Secret() { ::sodium_memzero(bytes_.data(), bytes_.size()); }

Secret Secret::make() {
  Secret secret;
  ::randombytes_buf(secret.bytes_.data(), secret.bytes_.size());
  return secret;
}

Secret Secret::from_text(std::string_view text) {
  Secret secret;
  size_t read = 0;
  const int wrong = ::sodium_hex2bin(
      reinterpret_cast<unsigned char*>(secret.bytes_.data()), secret.bytes_.size(),
      text.data(), text.size(), nullptr, &read, nullptr);
  if (wrong != 0 || read != secret.bytes_.size() || text.size() != 2 * read) {
    fail_input("control",
               "the job's secret must be 64 hex digits, but it has {} characters; the "
               "supervisor passes the secret, so do not start agents by hand",
               text.size());
  }
  return secret;
}

std::optional<Secret> Secret::read_line(int fd) {
  // The text has room for one byte more than the digits, so that a longer line is
  // refused.
  std::array<char, 2 * 32 + 1> text{};
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, &text[size], 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || text[size] == '\n') break;
    ++size;
  }
  if (size == 0) return std::nullopt;
  try {
    Secret secret = from_text({text.data(), size});
    ::sodium_memzero(text.data(), text.size());
    return secret;
  } catch (...) {
    ::sodium_memzero(text.data(), text.size());
    throw;
  }
}

std::string Secret::to_text() const {
  std::string text(2 * bytes_.size() + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(),
                   reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
  text.pop_back();
  return text;
}

std::string sodium_version() { return ::sodium_version_string(); }

}  // namespace longhaul::cluster
