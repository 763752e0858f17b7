#include "longhaul/objects/address_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/objects/address.h"

namespace longhaul::objects {
namespace {

/// Schemes of object stores; Hadoop's programs write s3a and s3n.
constexpr std::string_view kOfStores = "s3 S3 s3a S3A s3n S3N";
/// The options of a signed address begin with this text. Such an address opens an object
/// to everybody who has the address.
constexpr std::string_view kOfSignedAddress = "X-Amz-";

/// An address within a text.
struct FoundAddress {
  std::string_view scheme;
  std::string_view rest;  ///< behind the slashes of the scheme
  bool in_path = false;   ///< the scheme ends a name of a path ("/mnt/s3")
  bool of_store = false;  ///< "s3:" and the like, whose authority is a bucket alone
};

/// Returns the address whose scheme ends at the colon at `colon`.
FoundAddress address_at(std::string_view text, size_t colon) {
  size_t begin = colon;
  while (begin > 0 && std::isalnum(static_cast<unsigned char>(text[begin - 1])) != 0) {
    --begin;
  }
  FoundAddress found;
  found.scheme = text.substr(begin, colon - begin);
  found.in_path = begin > 0 && std::string_view("/._-").find(text[begin - 1]) !=
                                   std::string_view::npos;
  found.of_store = has_word(kOfStores, found.scheme);
  found.rest = text.substr(colon + 1);
  found.rest.remove_prefix(
      std::min(found.rest.find_first_not_of('/'), found.rest.size()));
  // A key may hold blanks, but other words may follow an address within a text.
  const bool whole = begin == 0 && found.of_store;
  if (!whole) found.rest = found.rest.substr(0, found.rest.find_first_of(" \t\n\"'"));
  return found;
}

bool has_secret(const FoundAddress& found) {
  const std::string_view authority =
      found.rest.substr(0, found.rest.find_first_of("/?#,;()[]{} \t\n"));
  const size_t at = authority.find('@');
  const size_t colon = authority.find(':');
  const size_t options = std::min(options_in(found.rest), found.rest.size());
  if (!found.of_store) {
    // A port behind the colon is no password. Neither is a user's name alone before the
    // @, nor an image's digest behind the @.
    const bool has_password = at != std::string_view::npos && colon < at &&
                              !authority.substr(at).starts_with("@sha256:");
    return has_password ||
           found.rest.find(kOfSignedAddress, options) != std::string_view::npos;
  }
  // A colon with nothing behind it belongs to the sentence around the address. A secret
  // may begin with a slash.
  const bool has_password =
      colon != std::string_view::npos &&
      (colon + 1 < authority.size() || found.rest.substr(colon + 1).starts_with('/'));
  return at != std::string_view::npos || has_password || options < found.rest.size();
}

/// Returns the address without its secret.
std::string shown_address(const FoundAddress& found) {
  // If another address follows, it is unclear where this one ends.
  if (!found.of_store || found.rest.find(":/") != std::string_view::npos) {
    return std::string(found.scheme) + "://...";
  }
  return without_secrets("s3://" + std::string(found.rest));
}

}  // namespace

std::string address_problem(const std::string& path) {
  try {
    (void)parse_pattern(path);
  } catch (const InputError& error) {
    return error.message();
  }
  return {};
}

std::string secret_problem(std::string_view text) {
  for (size_t colon = text.find(":/"); colon != std::string_view::npos;
       colon = text.find(":/", colon + 1)) {
    const FoundAddress found = address_at(text, colon);
    // "C:/runs" is a path, and so is "a:/b", but s3:/ is what is left of s3://. In
    // "/mnt/s3:/data" it is the end of a path.
    const bool slashes = text.substr(colon, 3) == "://";
    const bool one_slash = found.of_store && !found.in_path;
    if (found.scheme.size() < 2 || !(slashes || one_slash)) continue;
    if (!has_secret(found)) continue;
    return fmt::format(
        "{}: an address holds no credentials and no options; give them in the "
        "environment (docs/objects.md) and write s3://BUCKET/KEY",
        shown_address(found));
  }
  return {};
}

}  // namespace longhaul::objects
