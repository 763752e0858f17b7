#include "longhaul/objects/service/aws_settings.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <initializer_list>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::objects {
namespace {

std::string variable(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

bool is_true(const std::string& value) {
  return has_word("1 true TRUE True yes YES on", value);
}

std::string config_text() {
  fs::path file = variable({"AWS_CONFIG_FILE"});
  if (file.empty()) file = fs::path(variable({"HOME"})) / ".aws/config";
  return is_seen_file(file) ? read_text(file, uint64_t{1} << 20) : std::string();
}

/// Files of certificates by distribution: Debian, Fedora, SUSE, Alpine.
constexpr std::array kCertificateFiles = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem"};

std::string certificate_file() {
  if (const std::string named = variable({"AWS_CA_BUNDLE", "SSL_CERT_FILE"});
      !named.empty()) {
    if (::access(named.c_str(), R_OK) == 0) return named;
    fail_input("objects",
               "{}: the file of certificates that AWS_CA_BUNDLE or SSL_CERT_FILE names "
               "cannot be read; name another or unset the variable",
               named);
  }
  for (const char* const file : kCertificateFiles) {
    if (::access(file, R_OK) == 0) return file;
  }
  return {};
}

}  // namespace

std::string profile_setting(const std::string& text, const std::string& profile,
                            const std::string& name) {
  bool inside = false;
  for (const std::string_view line : lines_of(text)) {
    const std::string_view plain = trimmed(line);
    if (plain.empty() || plain.front() == '#' || plain.front() == ';') continue;
    if (plain.front() == '[') {
      const std::string_view section = trimmed(plain, "[] \t\r");
      inside = section == profile || section == "profile " + profile;
      continue;
    }
    const size_t equals = plain.find('=');
    if (inside && equals != std::string_view::npos &&
        trimmed(plain.substr(0, equals)) == name) {
      return std::string(trimmed(plain.substr(equals + 1)));
    }
  }
  return {};
}

AwsSettings aws_settings() {
  const std::string text = config_text();
  std::string profile = variable({"AWS_PROFILE"});
  if (profile.empty()) profile = "default";
  AwsSettings settings;
  std::string endpoint = variable({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (endpoint.empty()) endpoint = profile_setting(text, profile, "endpoint_url");
  if (!endpoint.empty()) {
    const size_t colon = endpoint.find("://");
    settings.scheme = endpoint.substr(0, colon);
    if (colon != std::string::npos) settings.endpoint = endpoint.substr(colon + 3);
    while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
    if ((settings.scheme != "http" && settings.scheme != "https") ||
        settings.endpoint.empty() ||
        settings.endpoint.find_first_of("/@?") != std::string::npos) {
      fail_input("objects",
                 "the endpoint of the environment or of ~/.aws/config is no address like "
                 "https://HOST:PORT; correct AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or "
                 "endpoint_url");
    }
  }
  settings.region = variable({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (settings.region.empty()) settings.region = profile_setting(text, profile, "region");
  if (settings.region.empty() && !settings.endpoint.empty()) {
    settings.region = "us-east-1";
  }
  settings.virtual_hosts =
      is_true(variable({"AWS_VIRTUAL_HOSTING"})) ||
      profile_setting(text, profile, "addressing_style") == "virtual";
  std::string sums = variable({"AWS_REQUEST_CHECKSUM_CALCULATION"});
  if (sums.empty()) sums = profile_setting(text, profile, "request_checksum_calculation");
  settings.checksums =
      settings.endpoint.empty() && !has_word("when_required WHEN_REQUIRED", sums);
  const std::string etags = variable({"LONGHAUL_OBJECTS_ETAGS"});
  if (!etags.empty() && !has_word("md5 opaque", etags)) {
    fail_input("objects", "LONGHAUL_OBJECTS_ETAGS is '{}', and has to be md5 or opaque",
               etags);
  }
  const std::string host = settings.endpoint.substr(0, settings.endpoint.find(':'));
  const bool at_aws = host.empty() || host.ends_with(".amazonaws.com") ||
                      host.ends_with(".amazonaws.com.cn");
  if (at_aws || !etags.empty()) settings.has_other_etags = etags != "md5";
  settings.anonymous = is_true(variable({"AWS_NO_SIGN_REQUEST"}));
  if (settings.scheme == "https") settings.certificates = certificate_file();
  return settings;
}

}  // namespace longhaul::objects
