#pragma once

#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::objects {

/// Returns what the client of a store reads besides its variables, as far as it is on
/// this machine: ~/.aws, and the files that AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE,
/// AWS_WEB_IDENTITY_TOKEN_FILE, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, AWS_CA_BUNDLE and
/// SSL_CERT_FILE name.
std::vector<fs::path> client_files();

}  // namespace longhaul::objects
