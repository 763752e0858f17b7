#include "longhaul/objects/service/store_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace longhaul::objects {
namespace {

/// What AWS's names of errors mean to a person.
struct KnownError {
  const char* name;  ///< as Arrow writes it: "AWS Error ACCESS_DENIED during"
  ErrorKind kind;
  const char* advice;
};
constexpr const char* kCredentials =
    "give other credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or in "
    "~/.aws/credentials";
constexpr const char* kExpired =
    "the credentials have expired, and no others came; renew them in the environment or "
    "in ~/.aws/credentials and start again";
constexpr const char* kRegion =
    "the bucket is in another region; set AWS_REGION to the bucket's and start again";
constexpr const char* kPassing = "start again later";
// AWS gives its reason in the body, and an answer to HEAD has no body.
constexpr const char* kRefusedHead =
    "the store does not say why; mostly the credentials have expired or the region is "
    "another: renew the credentials, or set AWS_REGION, and start again";
constexpr std::array kKnownErrors = std::to_array<KnownError>({
    // The client itself writes these errors about a key, before any store sees the key.
    {"Empty path component", ErrorKind::Input,
     "a part of the key is empty; copy the object to a key without such a part"},
    {kUntrusted, ErrorKind::Input,
     "the store's certificate is not trusted here; name the file of its authorities in "
     "AWS_CA_BUNDLE, or set the clock where the certificate seems to have expired"},
    // These errors are temporary, though their HTTP status is that of a refusal.
    {"EXPIRED", ErrorKind::Temporary, kExpired},
    {"TOKEN_REFRESH_REQUIRED", ErrorKind::Temporary, kExpired},
    {"REQUEST_TIMEOUT", ErrorKind::Temporary, kPassing},
    {"THROTTL", ErrorKind::Temporary, kPassing},
    {"OPERATION_ABORTED", ErrorKind::Temporary, kPassing},
    {"BAD_DIGEST", ErrorKind::Temporary, kPassing},
    {kElsewhere, ErrorKind::Input, kRegion},
    {"PERMANENT_REDIRECT", ErrorKind::Input, kRegion},
    {"AUTHORIZATION_HEADER_MALFORMED", ErrorKind::Input, kRegion},
    {"ACCESS_DENIED", ErrorKind::Input,
     "the credentials do not allow it, or the object is absent and the bucket may not be "
     "listed; allow it, or set AWS_NO_SIGN_REQUEST=1 for a public bucket"},
    {"INVALID_ACCESS_KEY_ID", ErrorKind::Input, kCredentials},
    {"INVALID_CLIENT_TOKEN_ID", ErrorKind::Input, kCredentials},
    {"SIGNATURE_DOES_NOT_MATCH", ErrorKind::Input, kCredentials},
    {"INVALID_SIGNATURE", ErrorKind::Input, kCredentials},
    {"MISSING_AUTHENTICATION_TOKEN", ErrorKind::Input, kCredentials},
    {"HTTP status 400) during HeadObject operation: No response body", ErrorKind::Input,
     kRefusedHead},
    {"HTTP status 400) during HeadBucket operation: No response body", ErrorKind::Input,
     kRefusedHead},
    {"NO_SUCH_BUCKET", ErrorKind::Input,
     "the bucket is not there; correct the address or make the bucket"},
    {"NO_SUCH_KEY", ErrorKind::Input,
     "the object is not there any more; start again when no program changes the objects"},
    {"REQUEST_TIME_TOO_SKEWED", ErrorKind::Input,
     "this machine's clock and the store's differ; set the clock"},
    {"NETWORK_CONNECTION", ErrorKind::Temporary,
     "the store does not answer; look at the network and at AWS_ENDPOINT_URL_S3"},
});

/// Returns the message without the key, which may hold the words of an error.
std::string words_of(const std::string& message, const Address& address) {
  std::string words = message;
  for (size_t at = 0; !address.key.empty();) {
    at = words.find(address.key + "'", at);
    if (at == std::string::npos) break;
    words.erase(at, address.key.size());
  }
  return words;
}

}  // namespace

Error store_error(const std::string& message, const Address& address,
                  std::string_view doing, double patience) {
  const std::string words = words_of(message, address);
  std::string lower = words;
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  for (const KnownError& known : kKnownErrors) {
    // For an error that Arrow's client does not know, the message holds only AWS's name,
    // such as AccessDenied.
    std::string plain;
    for (const char c : std::string_view(known.name)) {
      if (c != '_') plain += static_cast<char>(std::tolower(c));
    }
    if (words.find(std::string("AWS Error ") + known.name) == std::string::npos &&
        lower.find(plain) == std::string::npos) {
      continue;
    }
    return {known.kind, "objects",
            fmt::format("{}: cannot {} it: {}; {}", address.text(), doing, message,
                        known.advice)};
  }
  // Any other HTTP status 4xx is a refusal, except 408 (too late) and 429 (too many).
  const bool refused = words.find("HTTP status 4") != std::string::npos &&
                       words.find("HTTP status 408") == std::string::npos &&
                       words.find("HTTP status 429") == std::string::npos;
  if (refused) {
    return InputError(
        "objects",
        fmt::format("{}: cannot {} it: {}; the store refuses the request: look at the "
                    "credentials, the address and AWS_ENDPOINT_URL_S3",
                    address.text(), doing, message));
  }
  return TemporaryError("objects",
                        fmt::format("{}: cannot {} it: {}; it was tried for up to {:.0f} "
                                    "seconds, start again later",
                                    address.text(), doing, message, patience));
}

bool says_expired(const Error& error) {
  return error.message().find(kExpired) != std::string::npos;
}

}  // namespace longhaul::objects
