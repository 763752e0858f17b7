#include "longhaul/objects/address.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::objects {
namespace {

constexpr std::string_view kScheme = "s3://";
constexpr size_t kLongestKey = 1024;  // the limit of S3

/// Returns the text of a path with both slashes behind "s3:". fs::path drops one of them
/// when it normalises a path.
std::string with_both_slashes(const fs::path& path) {
  std::string text = path.string();
  if (text.starts_with("s3:/") && !text.starts_with(kScheme)) text.insert(3, "/");
  return text;
}

void check_bucket(const std::string& bucket, std::string_view text) {
  const bool plain = std::ranges::all_of(bucket, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
  if (plain && bucket.size() >= 3 && bucket.size() <= 255 &&
      std::isalnum(static_cast<unsigned char>(bucket.front())) != 0 &&
      bucket.find("..") == std::string::npos) {
    return;
  }
  fail_input("objects",
             "{}: '{}' is no name of a bucket, which has 3 to 255 letters, digits, -, . "
             "and _; write s3://BUCKET/KEY",
             text, bucket);
}

void check_key(const std::string& key, std::string_view text) {
  if (key.size() > kLongestKey) {
    fail_input("objects", "{}: the key has {} bytes, and {} are allowed", text,
               key.size(), kLongestKey);
  }
  if (find_invalid_utf8(key)) fail_input("objects", "{:?}: the key is no UTF-8", text);
  if (!key.empty() && !is_path(key)) {
    fail_input("objects",
               "{}: the key has a part that is empty, \".\" or \"..\"; write the key "
               "without it",
               text);
  }
}

Address parse(const fs::path& path, bool pattern) {
  const std::string text = with_both_slashes(path);
  const std::string shown = without_secrets(text);
  if (!text.starts_with(kScheme)) {
    fail_input("objects", "{}: is no address; write s3://BUCKET/KEY", shown);
  }
  const std::string_view rest = std::string_view(text).substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const size_t options = pattern ? options_in(rest) : rest.find('?');
  if (rest.substr(0, slash).find_first_of("@:") != std::string_view::npos ||
      options != std::string_view::npos) {
    fail_input("objects",
               "{}: an address holds no credentials and no options; give them in the "
               "environment (docs/objects.md) and write s3://BUCKET/KEY",
               shown);
  }
  Address address{std::string(rest.substr(0, slash)), {}};
  if (slash < rest.size()) address.key = rest.substr(slash + 1);
  while (address.key.ends_with('/')) address.key.pop_back();
  check_bucket(address.bucket, shown);
  check_key(address.key, shown);
  return address;
}

}  // namespace

std::string Address::text() const {
  std::string text(kScheme);
  text += bucket;
  if (!key.empty()) text += "/" + key;
  return text;
}

Address Address::operator/(std::string_view name) const {
  return {bucket, key.empty() ? std::string(name) : fmt::format("{}/{}", key, name)};
}

size_t options_in(std::string_view text) {
  for (size_t mark = text.find('?'); mark != std::string_view::npos;
       mark = text.find('?', mark + 1)) {
    const size_t end = text.find_first_of("=/ \t\n", mark);
    if (end != std::string_view::npos && text[end] == '=') return mark;
  }
  return std::string_view::npos;
}

std::string without_secrets(std::string_view text) {
  std::string shown(text);
  const size_t scheme = shown.find(":/");
  if (scheme == std::string::npos) return shown;
  const size_t begin = std::min(shown.find_first_not_of('/', scheme + 1), shown.size());
  const size_t options = options_in(std::string_view(shown).substr(begin));
  if (options != std::string::npos) shown.erase(begin + options);
  const size_t at = shown.rfind('@');
  if (at != std::string::npos && at > begin)
    return shown.replace(begin, at - begin, "...");
  // The address may be "s3://KEY:SECRET". A secret may hold slashes, so nothing behind
  // the colon is shown.
  const bool of_store = std::string_view(shown).substr(0, scheme).ends_with("s3");
  const size_t colon = shown.find(':', begin);
  if (of_store && colon < shown.find('/', begin)) shown.replace(begin, shown.npos, "...");
  return shown;
}

bool is_address(const fs::path& path) {
  return with_both_slashes(path).starts_with(kScheme);
}

Address parse_address(const fs::path& path) { return parse(path, /*pattern=*/false); }

Address parse_pattern(const fs::path& path) { return parse(path, /*pattern=*/true); }

bool is_path(std::string_view key) {
  while (true) {
    const size_t slash = key.find('/');
    const std::string_view part = key.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    key.remove_prefix(slash + 1);
  }
}

}  // namespace longhaul::objects
