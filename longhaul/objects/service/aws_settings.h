#pragma once

#include <optional>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::objects {

/// What the environment and ~/.aws/config say about the way to the store. Credentials are
/// not among it: Arrow's client finds them itself.
struct AwsSettings {
  std::string endpoint;  ///< HOST:PORT; empty: the store of AWS itself
  std::string scheme = "https";
  std::string region;          ///< empty: the bucket's own is asked for
  bool virtual_hosts = false;  ///< whether a bucket is part of the host's name
  bool anonymous = false;
  /// Whether the client sends checksums that the store compares. It does so at AWS,
  /// unless AWS_REQUEST_CHECKSUM_CALCULATION or the profile says "when_required".
  bool checksums = true;
  /// Whether the ETag of an object that was sent at once need not be the MD5 of its
  /// bytes. It is false if LONGHAUL_OBJECTS_ETAGS is "md5", and true if that is "opaque".
  /// Else it is true at AWS, which may encrypt with keys of the user, and empty
  /// elsewhere: only a comparison of the bucket's objects with their ETags can tell.
  std::optional<bool> has_other_etags;
  std::string certificates;  ///< file of the authorities' certificates
};

/// Reads AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION,
/// AWS_VIRTUAL_HOSTING, AWS_NO_SIGN_REQUEST, AWS_REQUEST_CHECKSUM_CALCULATION,
/// AWS_CA_BUNDLE, SSL_CERT_FILE, LONGHAUL_OBJECTS_ETAGS and, of the profile AWS_PROFILE
/// in AWS_CONFIG_FILE or ~/.aws/config, endpoint_url, region, addressing_style and
/// request_checksum_calculation. Throws InputError for an endpoint that is no http:// or
/// https:// address, for a file of certificates that cannot be read, and for another
/// value of LONGHAUL_OBJECTS_ETAGS than "md5" and "opaque".
AwsSettings aws_settings();

/// Returns a setting of one profile in the text of a file like ~/.aws/config; the empty
/// text if there is none. A setting in the profile's block "s3 =" counts as well.
std::string profile_setting(const std::string& text, const std::string& profile,
                            const std::string& name);

}  // namespace longhaul::objects
