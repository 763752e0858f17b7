#include "longhaul/objects/etag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <utility>

#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"

namespace longhaul::objects {
namespace {

constexpr size_t kDigits = 32;
/// The sizes of parts that programs send, in MiB: aws and boto3, this program, rclone,
/// and others.
constexpr uint64_t kPartMegabytes[] = {8,  10, 5,  16,  15,  20,  25,
                                       32, 50, 64, 100, 128, 256, 512};
/// The most sizes of parts that are all tried, usual or not: each size costs an MD5 of
/// all bytes of the object.
constexpr uint64_t kMostSizes = 4;
constexpr uint64_t kMegabyte = uint64_t{1} << 20;

/// Returns the sizes in MiB that the parts of an object of `size` bytes in `parts` parts
/// may have. Returns all whole sizes if there are at most kMostSizes, else the usual
/// sizes.
std::vector<uint64_t> part_megabytes(uint64_t size, uint64_t parts) {
  if (parts == 0 || parts > size / kMegabyte + 1) return {};
  const auto count = [&](uint64_t megabytes) {
    return (size + megabytes * kMegabyte - 1) / (megabytes * kMegabyte);
  };
  std::vector<uint64_t> all;
  const uint64_t smallest =
      std::max<uint64_t>((size + parts * kMegabyte - 1) / (parts * kMegabyte), 1);
  for (uint64_t n = smallest; all.size() <= kMostSizes && count(n) == parts; ++n) {
    all.push_back(n);
    if (parts == 1) break;  // any larger part size gives the same ETag
  }
  if (all.size() <= kMostSizes) return all;
  all.clear();
  std::ranges::copy_if(kPartMegabytes, std::back_inserter(all),
                       [&](uint64_t n) { return count(n) == parts; });
  return all;
}

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
  if (!text.empty()) return;
  for (const uint64_t megabytes : part_megabytes(size, parts_)) {
    sums_.push_back({megabytes << 20, megabytes << 20});
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
