#include "longhaul/cluster/fleet/cloud_instance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/cluster/control/socket.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

constexpr const char* kEc2 = "EC2";
/// The metadata service answers from the machine itself, within milliseconds or never.
constexpr double kMetadataSeconds = 1.0;
constexpr const char* kMetadataService = "http://169.254.169.254";
constexpr int kHttpPort = 80;
/// A longer answer does not come from the metadata service.
constexpr size_t kMostAnswer = 4096;
/// The metadata service's tokens have 56 characters.
constexpr size_t kMostToken = 256;
constexpr size_t kMostPart = 64;
constexpr uint64_t kMostFirmware = 256;
constexpr std::string_view kPartCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.";
constexpr std::string_view kTokenCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";

/// A word in a file of the firmware by which a cloud's machines are known.
struct Sign {
  const char* file;
  const char* word;
  const char* cloud;
};
constexpr std::array<Sign, 5> kCloudSigns = {
    {{"sys_vendor", "Amazon EC2", kEc2},
     {"bios_version", ".amazon", kEc2},  // instances of Xen
     {"product_name", "Google Compute Engine", "Google Compute Engine"},
     {"chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77", "Azure"},
     {"chassis_asset_tag", "OracleCloud.com", "Oracle Cloud"}}};

bool consists_of(std::string_view text, std::string_view characters, size_t most) {
  return !text.empty() && text.size() <= most &&
         text.find_first_not_of(characters) == std::string_view::npos;
}

/// Returns the text if it can be a part of an instance's name, else nothing.
std::string part_of(std::string_view text) {
  return consists_of(text, kPartCharacters, kMostPart) ? std::string(text) : "";
}

std::string id_of(std::string_view text) {
  return text.starts_with("i-") ? part_of(text) : "";
}

std::string firmware_text(const fs::path& file) {
  try {
    return std::string(trimmed(read_text(file, kMostFirmware)));
  } catch (const std::exception&) {
    return {};
  }
}

struct Endpoint {
  std::string host;
  int port = kHttpPort;
};

/// Reads "http://HOST[:PORT]" with or without a slash at its end.
std::optional<Endpoint> read_endpoint(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return std::nullopt;
  url.remove_prefix(kScheme.size());
  if (url.ends_with('/')) url.remove_suffix(1);
  Endpoint endpoint;
  const bool bracketed = url.starts_with('[');
  const size_t end = bracketed ? url.find(']') : url.find(':');
  if (bracketed && end == std::string_view::npos) return std::nullopt;
  endpoint.host = url.substr(bracketed ? 1 : 0, end - (bracketed ? 1 : 0));
  if (end == std::string_view::npos) return endpoint;
  url.remove_prefix(end + (bracketed ? 1 : 0));
  if (url.empty()) return endpoint;
  const auto port =
      url.starts_with(':') ? whole_number<uint16_t>(url.substr(1)) : std::nullopt;
  if (!port) return std::nullopt;
  endpoint.port = *port;
  return endpoint;
}

/// Speaks to the metadata service, one connection for each request, until
/// kMetadataSeconds have passed.
class MetadataService {
 public:
  explicit MetadataService(const Endpoint& endpoint)
      : endpoint_(endpoint), address_(resolve(endpoint.host, endpoint.port).at(0)) {}

  /// Returns the body of a good answer; nothing for any other.
  std::optional<std::string> request(std::string_view what, std::string_view header) {
    if (watch_.seconds() >= kMetadataSeconds) return std::nullopt;
    std::string why;
    const auto socket = start_connect(address_, why);
    if (!socket) return std::nullopt;
    const std::string text = fmt::format(
        "{} HTTP/1.1\r\nHost: {}\r\n{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        what, endpoint_.host, header);
    for (size_t sent = 0; sent < text.size();) {
      size_t count = 0;
      if (!wait_for(socket->get(), POLLOUT) || socket_error(socket->get()) != 0 ||
          write_some(socket->get(), std::string_view(text).substr(sent), count, why) ==
              IoResult::Closed) {
        return std::nullopt;
      }
      sent += count;
    }
    return body_of(read_answer(socket->get()));
  }

 private:
  bool wait_for(int fd, short events) const {
    const double left = kMetadataSeconds - watch_.seconds();
    pollfd one{fd, events, 0};
    return left > 0.0 && ::poll(&one, 1, static_cast<int>(std::ceil(1000.0 * left))) > 0;
  }

  std::string read_answer(int fd) const {
    std::string answer;
    std::array<std::byte, kMostAnswer> bytes{};
    while (answer.size() <= kMostAnswer && wait_for(fd, POLLIN)) {
      size_t count = 0;
      std::string why;
      if (read_some(fd, bytes, count, why) == IoResult::Closed) return answer;
      answer.append(reinterpret_cast<const char*>(bytes.data()), count);
    }
    return {};
  }

  static std::optional<std::string> body_of(const std::string& answer) {
    const size_t head = answer.find("\r\n\r\n");
    const bool good =
        answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200");
    if (!good || head == std::string::npos || answer.size() > kMostAnswer)
      return std::nullopt;
    return answer.substr(head + 4);
  }

  Endpoint endpoint_;
  SocketAddress address_;
  system::Stopwatch watch_;
};

}  // namespace

std::string CloudInstance::to_text() const {
  std::vector<std::string> parts = {id.empty() ? cloud : fmt::format("{} {}", cloud, id)};
  for (const std::string& part : {type, zone}) {
    if (!part.empty()) parts.push_back(part);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::optional<CloudInstance> read_firmware(const fs::path& dir) {
  const auto sign = std::ranges::find_if(kCloudSigns, [&](const Sign& one) {
    return firmware_text(dir / one.file).find(one.word) != std::string::npos;
  });
  if (sign == kCloudSigns.end()) return std::nullopt;
  CloudInstance instance{.cloud = sign->cloud};
  if (instance.cloud != kEc2) return instance;
  instance.id = id_of(firmware_text(dir / "board_asset_tag"));
  // If the firmware gives no instance id, its product_name is that of the hypervisor.
  if (!instance.id.empty()) instance.type = part_of(firmware_text(dir / "product_name"));
  return instance;
}

void ask_metadata(CloudInstance& instance,
                  const std::function<const char*(const char*)>& variable) {
  const bool whole =
      !instance.id.empty() && !instance.type.empty() && !instance.zone.empty();
  const auto text = [&](const char* name) {
    const char* value = variable(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (instance.cloud != kEc2 || whole) return;
  std::string disabled = text("AWS_EC2_METADATA_DISABLED");
  std::ranges::transform(disabled, disabled.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  if (disabled == "true") return;
  const std::string url = text("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  const auto endpoint = read_endpoint(url.empty() ? kMetadataService : url);
  if (!endpoint) return;
  try {
    MetadataService service(*endpoint);
    const auto token = service.request("PUT /latest/api/token",
                                       "X-aws-ec2-metadata-token-ttl-seconds: 60");
    // The token goes into a header, and a line break in it would begin another header.
    if (!token || !consists_of(*token, kTokenCharacters, kMostToken)) return;
    const std::string header = fmt::format("X-aws-ec2-metadata-token: {}", *token);
    const auto ask = [&](std::string& part, const char* what, const auto& read) {
      if (!part.empty()) return;
      const auto answer =
          service.request(fmt::format("GET /latest/meta-data/{}", what), header);
      if (answer) part = read(*answer);
    };
    ask(instance.id, "instance-id", id_of);
    ask(instance.type, "instance-type", part_of);
    ask(instance.zone, "placement/availability-zone", part_of);
  } catch (const Error&) {
    // The parts that the metadata service does not tell stay empty.
  }
}

InstanceLine::InstanceLine(const std::string& speaker)
    : child_([&speaker] {
        auto instance = read_firmware();
        if (!instance) return;
        ask_metadata(*instance);
        fmt::print(stderr, "{}: this machine is {}\n", speaker, instance->to_text());
        std::fflush(stderr);
      }) {}

}  // namespace longhaul::cluster
