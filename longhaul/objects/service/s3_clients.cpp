#include "longhaul/objects/service/s3_clients.h"

#include <arrow/io/interfaces.h>
#include <arrow/util/thread_pool.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "longhaul/objects/service/aws_settings.h"
#include "longhaul/objects/service/store_errors.h"

namespace longhaul::objects {
namespace {

namespace af = arrow::fs;

/// The number of Arrow's threads that send the parts of objects.
constexpr int kPartThreads = 8;

void check(const arrow::Status& status, const Address& address, const char* doing,
           const Patience& patience) {
  if (status.ok()) return;
  throw store_error(status.message(), address, doing, patience.seconds);
}

/// Returns a path in which all characters are percent-encoded except letters, digits and
/// "/._-~".
std::string percent_encoded(std::string_view path) {
  std::string text;
  for (const char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("/._-~").find(c) != std::string_view::npos;
    text +=
        plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return text;
}

/// Returns whether a client can be given the name of a directory as that of a bucket. The
/// client would lose what is behind "?", and takes "run:1" for a URI; a name that ends
/// with "-s3" has a meaning of its own at AWS.
bool stands_for_a_bucket(std::string_view dir) {
  const size_t scheme = std::ranges::find_if_not(dir,
                                                 [](unsigned char c) {
                                                   return std::isalnum(c) != 0 ||
                                                          c == '+' || c == '.' ||
                                                          c == '-';
                                                 }) -
                        dir.begin();
  return dir.find('?') == std::string_view::npos && !dir.ends_with("-s3") &&
         (scheme == dir.size() || dir[scheme] != ':');
}

/// Returns the host and path below which the objects of a bucket lie; empty if they are
/// unknown.
std::string place_of_bucket(const AwsSettings& settings, const std::string& bucket,
                            const std::string& region) {
  if (!settings.endpoint.empty()) {
    return settings.virtual_hosts ? bucket + "." + settings.endpoint
                                  : settings.endpoint + "/" + bucket;
  }
  if (region.find("-iso") != std::string::npos) return {};
  return fmt::format("s3.{}.amazonaws.com{}/{}", region,
                     region.starts_with("cn-") ? ".cn" : "", bucket);
}

}  // namespace

std::string path_of(const Address& address) {
  return address.key.empty() ? address.bucket : address.bucket + "/" + address.key;
}

S3Clients::~S3Clients() {
  clients_.clear();
  if (started_) static_cast<void>(af::FinalizeS3());
}

S3Clients::Named S3Clients::client(const Address& address) {
  const std::lock_guard lock(mutex_);
  auto& one = clients_[address.bucket];
  if (!one) one = make(address);
  return {one, path_of(address)};
}

S3Clients::Named S3Clients::remover(const Address& address) {
  const size_t name = address.key.rfind('/');
  if (name == std::string::npos) return client(address);
  const size_t dir = name == 0 ? std::string::npos : address.key.rfind('/', name - 1);
  const bool is_deep = dir != std::string::npos;
  const std::string above = is_deep ? address.key.substr(0, dir) : std::string();
  const std::string below = is_deep ? address.key.substr(dir + 1) : address.key;
  const bool fits = is_path(address.key) && above.find('?') == std::string::npos &&
                    stands_for_a_bucket(below.substr(0, below.find('/')));
  if (!fits) return client(address);
  const std::lock_guard lock(mutex_);
  auto& one = clients_[fmt::format("/{}/{}", address.bucket, above)];
  if (!one) one = make(address, above);
  if (one) return {one, below};
  auto& plain = clients_[address.bucket];
  if (!plain) plain = make(address);
  return {plain, path_of(address)};
}

void S3Clients::forget() {
  const std::lock_guard lock(mutex_);
  clients_.clear();
}

void S3Clients::end_listings() {
  const std::lock_guard lock(mutex_);
  listings_.RequestStop();
  listings_ = arrow::StopSource();
  clients_.clear();
}

std::shared_ptr<af::S3FileSystem> S3Clients::make(const Address& address,
                                                  std::optional<std::string> above) {
  const AwsSettings settings = aws_settings();
  if (!started_) {
    checksums_ = settings.checksums;
    // By itself the client adds a checksum behind the body, which most stores other than
    // AWS do not know. Nobody else reads the environment here, since `mutex_` is held.
    if (!checksums_) ::setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required", 0);
    af::S3GlobalOptions options = af::S3GlobalOptions::Defaults();
    options.log_level = af::S3LogLevel::Off;
    check(af::InitializeS3(options), address, "prepare to open", *patience_);
    check(arrow::io::SetIOThreadPoolCapacity(kPartThreads), address, "prepare to open",
          *patience_);
    started_ = true;
  }
  af::S3Options options =
      settings.anonymous ? af::S3Options::Anonymous() : af::S3Options::Defaults();
  options.scheme = settings.scheme;
  options.endpoint_override = settings.endpoint;
  options.force_virtual_addressing = settings.virtual_hosts;
  options.tls_ca_file_path = settings.certificates;
  options.connect_timeout = 10;
  options.request_timeout = kRequestSeconds;
  options.background_writes = true;
  options.allow_delayed_open = true;
  options.retry_strategy = make_retries(patience_);
  options.region = settings.region;
  if (options.region.empty()) {
    auto region = af::ResolveS3BucketRegion(address.bucket);
    check(region.status(), address, "find the region of", *patience_);
    options.region = *region;
  }
  if (above) {
    options.endpoint_override = place_of_bucket(settings, address.bucket, options.region);
    if (options.endpoint_override.empty()) return nullptr;
    if (!above->empty()) options.endpoint_override += "/" + percent_encoded(*above);
    options.force_virtual_addressing = false;
  }
  auto made = af::S3FileSystem::Make(options, arrow::io::IOContext(listings_.token()));
  check(made.status(), address, "open", *patience_);
  return *made;
}

}  // namespace longhaul::objects
