#include "longhaul/objects/etag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::objects {
namespace {

constexpr size_t kDigits = 32;
/// The sizes of parts that programs send, in MiB: aws and boto3, this program, rclone,
/// and others.
constexpr uint64_t kPartMegabytes[] = {8, 10, 5, 16, 15, 50, 64, 100, 128};

std::string hex(const Md5::Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

EtagProof::EtagProof(const std::string& version, uint64_t size) {
  std::string_view text = trimmed(version, "\"");
  const std::string_view digits = text.substr(0, kDigits);
  const bool is_hex =
      digits.size() == kDigits && std::ranges::all_of(digits, [](unsigned char c) {
        return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
      });
  if (!is_hex) return;
  wanted_ = text;
  text.remove_prefix(kDigits);
  if (text.empty()) {
    const uint64_t all = std::numeric_limits<uint64_t>::max();
    sums_.push_back({all, all});
    return;
  }
  if (!text.starts_with('-')) return;
  text.remove_prefix(1);
  parts_ = take_number<uint64_t>(text).value_or(0);
  if (parts_ == 0 || !text.empty()) return;
  for (const uint64_t megabytes : kPartMegabytes) {
    const uint64_t bytes = megabytes << 20;
    if ((size + bytes - 1) / bytes == parts_) sums_.push_back({bytes, bytes});
  }
}

void EtagProof::update(std::span<const std::byte> bytes) {
  for (Sum& sum : sums_) {
    for (std::span<const std::byte> rest = bytes; !rest.empty();) {
      const auto now =
          rest.first(static_cast<size_t>(std::min<uint64_t>(rest.size(), sum.left)));
      sum.part.update(now);
      rest = rest.subspan(now.size());
      sum.left -= now.size();
      if (sum.left > 0) continue;
      sum.parts.update(std::exchange(sum.part, {}).finish());
      sum.left = sum.part_bytes;
    }
  }
}

bool EtagProof::fits() {
  bool fits = sums_.empty();
  for (Sum& sum : sums_) {
    std::string found;
    if (is_plain()) {
      found = hex(sum.part.finish());
    } else {
      if (sum.left < sum.part_bytes) sum.parts.update(sum.part.finish());
      found = fmt::format("{}-{}", hex(sum.parts.finish()), parts_);
    }
    fits = fits || found == wanted_;
    digest_ += (digest_.empty() ? "" : " or ") + found;
  }
  return fits;
}

}  // namespace longhaul::objects
