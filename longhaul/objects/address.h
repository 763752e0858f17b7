#pragma once

#include <string>
#include <string_view>

#include "longhaul/base/file.h"

namespace longhaul::objects {

/// The address of an object, or of all objects whose keys begin with a prefix:
/// s3://BUCKET/KEY.
struct Address {
  std::string bucket;
  std::string key;  ///< without a first slash; may be empty

  /// Returns "s3://BUCKET/KEY".
  std::string text() const;
  /// Returns the address of `name` below this one: a slash stands between them.
  Address operator/(std::string_view name) const;
  bool operator==(const Address&) const = default;
};

/// Returns whether a setting or an argument is an address of an object store: it begins
/// with "s3://", or with "s3:/", which fs::path makes of it when it normalises a path.
/// Addresses of other kinds ("gs://", "https://") do not count; base/missing_path.h
/// refuses them.
bool is_address(const fs::path& path);

/// Reads "s3://BUCKET/KEY". Slashes at the end do not count: people write them behind
/// directories. Throws InputError for a text without a bucket, and for a bucket's name
/// that no store allows. Also throws InputError for a key with an empty part, "." or
/// "..", and for what looks like secrets in the address ("KEY:SECRET@bucket",
/// "?access_key=").
Address parse_address(const fs::path& path);

/// Does what parse_address() does for an address whose key may be a pattern. In a pattern
/// "?" stands for any character, unless options begin with it (options_in()).
Address parse_pattern(const fs::path& path);

/// Returns whether the parts of a key can be names of directories and of a file: none is
/// empty, "." or "..". Stores allow other keys as well.
bool is_path(std::string_view key);

/// Returns where options ("?NAME=") begin in a text; npos if none do. A name holds no
/// slash and no blank, so that the pattern "202?/day=1" has no options.
size_t options_in(std::string_view text);

/// Returns a text for messages in which an address may stand. What may be credentials in
/// the address ("KEY:SECRET@", "?access_key=") is left out.
std::string without_secrets(std::string_view text);

}  // namespace longhaul::objects
