#include "longhaul/objects/service/s3_clients.h"

#include <arrow/util/thread_pool.h>

#include <algorithm>
#include <cstdlib>

#include "longhaul/objects/service/aws_settings.h"
#include "longhaul/objects/service/store_errors.h"

namespace longhaul::objects {
namespace {

namespace af = arrow::fs;

/// Threads of Arrow that send the parts of objects.
constexpr int kPartThreads = 8;

void check(const arrow::Status& status, const Address& address, const char* doing,
           const Patience& patience) {
  if (status.ok()) return;
  throw store_error(status.message(), address, doing, patience.seconds);
}

/// Returns whether the path of an endpoint may have a character, however it is read.
bool is_plain(char c) {
  return std::string_view("/._-").find(c) != std::string_view::npos ||
         (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
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
  if (!one) one = make(address, {});
  return {one, path_of(address)};
}

S3Clients::Named S3Clients::remover(const Address& address) {
  const std::string path = path_of(address);
  const size_t dir = path.rfind('/', path.rfind('/') - 1);
  if (dir == std::string::npos || !removes_cleanly(address)) return client(address);
  const std::string above = path.substr(0, dir);
  const std::lock_guard lock(mutex_);
  auto& one = clients_["/" + above];
  if (!one) one = make(address, "/" + above);
  return {one, path.substr(dir + 1)};
}

bool S3Clients::removes_cleanly(const Address& address) {
  const AwsSettings settings = aws_settings();
  const std::string dir = path_of(address).substr(0, path_of(address).rfind('/'));
  return !settings.endpoint.empty() && !settings.virtual_hosts &&
         dir.find("//") == std::string::npos && std::ranges::all_of(dir, is_plain);
}

void S3Clients::forget() {
  const std::lock_guard lock(mutex_);
  clients_.clear();
}

std::shared_ptr<af::S3FileSystem> S3Clients::make(const Address& address,
                                                  const std::string& above) {
  const AwsSettings settings = aws_settings();
  if (!started_) {
    checksums_ = settings.checksums;
    // The checksums behind a body that the client would add are unknown to many stores
    // but AWS's. Nobody else reads the environment here: `mutex_` is held.
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
  options.endpoint_override =
      settings.endpoint.empty() ? std::string() : settings.endpoint + above;
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
  auto made = af::S3FileSystem::Make(options);
  check(made.status(), address, "open", *patience_);
  return *made;
}

}  // namespace longhaul::objects
