#include "longhaul/objects/client_files.h"

#include <cstdlib>

#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

TEST(ClientFiles, AreThoseThatTheVariablesNameAndThatAreThere) {
  const TestDirectory scratch;
  const fs::path home = scratch / "home";
  fs::create_directories(home / ".aws");
  write_file(scratch / "ca.pem", "x");
  write_file(scratch / "token", "x");
  ::setenv("HOME", home.c_str(), 1);
  ::setenv("AWS_CA_BUNDLE", (scratch / "ca.pem").c_str(), 1);
  ::setenv("AWS_WEB_IDENTITY_TOKEN_FILE", (scratch / "token").c_str(), 1);
  ::setenv("AWS_CONFIG_FILE", (scratch / "absent").c_str(), 1);
  ::setenv("SSL_CERT_FILE", "", 1);
  ::unsetenv("AWS_SHARED_CREDENTIALS_FILE");
  ::unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  EXPECT_EQ(client_files(), (std::vector<fs::path>{home / ".aws", scratch / "token",
                                                   scratch / "ca.pem"}));
}

}  // namespace
}  // namespace longhaul::objects
