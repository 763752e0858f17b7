#include "longhaul/cluster/secret.h"

#include <fmt/format.h>
#include <sodium.h>

#include <cstdlib>
#include <cstring>

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
    throw InputError("control",
                     fmt::format("the job's secret ({}) must be 64 hex digits, it has {} "
                                 "characters; the supervisor sets it, do not set it "
                                 "by hand",
                                 kSecretVariable, text.size()));
  }
  return secret;
}

std::optional<Secret> Secret::take_from_environment() {
  char* text = std::getenv(kSecretVariable);
  if (text == nullptr) return std::nullopt;
  std::string copy(text);
  // unsetenv alone leaves the text where /proc/PID/environ shows it.
  ::sodium_memzero(text, copy.size());
  ::unsetenv(kSecretVariable);
  try {
    Secret secret = from_text(copy);
    ::sodium_memzero(copy.data(), copy.size());
    return secret;
  } catch (...) {
    ::sodium_memzero(copy.data(), copy.size());
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
