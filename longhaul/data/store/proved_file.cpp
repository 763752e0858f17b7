#include "longhaul/data/store/proved_file.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr size_t kHexDigits = 32;  // digits of the hash of a block
constexpr uint64_t kMaxHashFile = uint64_t{8} << 30;

}  // namespace

std::string read_proved_text(const fs::path& path, const StoreFile& file,
                             const ProofWords& words) {
  std::string text = read_text(path, kMaxHashFile);
  BlockHasher hasher;
  hasher.update(std::as_bytes(std::span(text)));
  const std::string found = combine_hashes(hasher.finish());
  if (text.size() == file.bytes && found == file.hash) return text;
  fail_input("data", "{}: damaged: its hash is {}, but {} says {}; {}", path.string(),
             found, words.record, file.hash, words.advice);
}

void ShardHashes::load() const {
  std::map<std::string, std::string> hashes;
  const Json json = parse_json(read_proved_text(path(), file_, words_), path().string());
  for (const auto& [name, blocks] : json.items()) {
    std::string& all = hashes[name];
    for (const Json& block : blocks) {
      if (!block.is_string() ||
          block.get_ref<const std::string&>().size() != kHexDigits) {
        fail_input("data", "{}: '{}' holds {}, which is not a hash", path().string(),
                   name, json_text(block));
      }
      all += block.get_ref<const std::string&>();
    }
  }
  hashes_ = std::move(hashes);
}

std::string ShardHashes::expected(const std::string& name, uint64_t block) const {
  std::call_once(once_, [this] { load(); });
  const auto found = hashes_.find(name);
  if (found == hashes_.end() || found->second.size() < (block + 1) * kHexDigits) {
    fail_input("data", "{}: no hash of block {} of {}", path().string(), block, name);
  }
  return found->second.substr(block * kHexDigits, kHexDigits);
}

ProvedFile::ProvedFile(const fs::path& dir, const StoreFile& file,
                       std::shared_ptr<const ShardHashes> hashes)
    : mapped_(join_inside(dir, file.name, "data")),
      name_(file.name),
      hashes_(std::move(hashes)) {
  LH_CHECK(mapped_.bytes().size() == file.bytes, "data", "{} changed its size", name_);
  if (!hashes_) return;
  const uint64_t blocks = (file.bytes + kHashBlockBytes - 1) / kHashBlockBytes;
  good_ = std::make_unique<std::atomic<bool>[]>(blocks);
}

void ProvedFile::prove(uint64_t block) const {
  const uint64_t begin = block * kHashBlockBytes;
  const auto all = mapped_.bytes();
  const auto bytes = all.subspan(begin, std::min(kHashBlockBytes, all.size() - begin));
  // This hint makes one request to the disk instead of one request for each page.
  ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_WILLNEED);
  const std::string expected = hashes_->expected(name_, block);
  const std::string found = hash_hex(bytes);
  if (found != expected) {
    fail_input("data",
               "{}: damaged: block {} (bytes {} to {}) has hash {}, {} says {}; {}{}",
               mapped_.path().string(), block, begin, begin + bytes.size(), found,
               hashes_->path().filename().string(), expected, hashes_->words().advice,
               hashes_->words().whole);
  }
  good_[block].store(true, std::memory_order_relaxed);
}

}  // namespace longhaul::data
