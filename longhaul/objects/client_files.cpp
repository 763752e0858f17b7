#include "longhaul/objects/client_files.h"

#include <cstdlib>

namespace longhaul::objects {

std::vector<fs::path> client_files() {
  std::vector<fs::path> found;
  const auto add = [&](const char* variable, const char* below = nullptr) {
    const char* const value = std::getenv(variable);
    if (value == nullptr || *value == '\0') return;
    const fs::path path = below == nullptr ? fs::path(value) : fs::path(value) / below;
    if (is_seen(path)) found.push_back(path);
  };
  add("HOME", ".aws");
  add("AWS_SHARED_CREDENTIALS_FILE");
  add("AWS_CONFIG_FILE");
  add("AWS_WEB_IDENTITY_TOKEN_FILE");
  add("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  add("AWS_CA_BUNDLE");
  add("SSL_CERT_FILE");
  return found;
}

}  // namespace longhaul::objects
