#include "longhaul/checkpoint/memory/part.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/numbers.h"
#include "longhaul/run/node_memory.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::checkpoint {
namespace {

constexpr uint64_t kPage = 4096;
// With fewer blocks than this a second thread costs more than it saves.
constexpr uint64_t kBlocksPerThread = 4;
// Far above the size of any part; keeps sums of sizes from overflowing.
constexpr uint64_t kMostBytes = uint64_t{1} << 50;
// A limit for the number of ranks that a seal names, because a list of that length is
// made.
constexpr uint32_t kMostRanks = uint32_t{1} << 24;
constexpr char kMagic[8] = {'L', 'H', 'M', 'E', 'M', 'P', 'R', 'T'};
constexpr const char* kTextFormat = "longhaul-part";

struct Seal {
  char magic[8];
  uint32_t version;
  uint32_t owner;
  uint32_t world;
  uint32_t attempt;
  int64_t step;
  PartShape shape;
  uint64_t state_bytes;
  char run[kRunKeyDigits];
  char text_hash[kHashDigits];
  char state_hash[kHashDigits];
  char table_hash[kHashDigits];
  char self[kHashDigits];
};
static_assert(std::is_trivially_copyable_v<Seal> && sizeof(Seal) == 224);

uint64_t whole_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

template <size_t N>
void put(char (&field)[N], std::string_view text) {
  LH_CHECK(text.size() == N, "memory", "'{}' has not {} digits", text, N);
  std::memcpy(field, text.data(), N);
}

std::string_view view(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string self_hash(const Seal& seal) {
  return hash_hex(
      std::string_view(reinterpret_cast<const char*>(&seal), offsetof(Seal, self)));
}

std::optional<int> number_in(std::string_view& text, std::string_view before) {
  if (!text.starts_with(before)) return std::nullopt;
  text.remove_prefix(before.size());
  const auto number = take_number<int>(text);
  return number >= 0 ? number : std::nullopt;
}

/// Runs work(first block, end) on several threads.
template <typename Work>
void by_blocks(uint64_t blocks, int threads, const Work& work) {
  const uint64_t workers = std::clamp<uint64_t>(
      blocks / kBlocksPerThread, 1, static_cast<uint64_t>(std::max(threads, 1)));
  system::run_on_threads(static_cast<int>(workers), [&](int number) {
    const auto w = static_cast<uint64_t>(number);
    work(blocks * w / workers, blocks * (w + 1) / workers);
  });
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  fail_input("memory", "{}: {}", path.string(), why);
}

}  // namespace

std::string PartName::text() const {
  return fmt::format("a{}_s{}_rank_{:05}.part", attempt, slot, owner);
}

std::optional<PartName> PartName::parse(std::string_view name) {
  std::string_view rest = name;
  const auto attempt = number_in(rest, "a");
  const auto slot = attempt ? number_in(rest, "_s") : std::nullopt;
  const auto owner = slot ? number_in(rest, "_rank_") : std::nullopt;
  if (!owner || rest != run::kPartSuffix) return std::nullopt;
  return PartName{*attempt, *slot, *owner};
}

uint64_t PartShape::blocks() const {
  return (data_bytes + kHashBlockBytes - 1) / kHashBlockBytes;
}
uint64_t PartShape::room_at() const { return kPage + whole_pages(text_bytes); }
uint64_t PartShape::table_at() const { return room_at() + whole_pages(room_bytes); }
uint64_t PartShape::data_at() const {
  return table_at() + whole_pages(blocks() * kHashDigits);
}
uint64_t PartShape::file_bytes() const { return data_at() + data_bytes; }

PartPlan plan_part(const std::vector<StateTensor>& tensors, const Json& layout) {
  PartPlan plan;
  Json boxes = Json::array();
  for (const StateTensor& tensor : tensors) {
    boxes.push_back(box_json(tensor.kind, tensor.slice, plan.data_bytes));
    plan.begins.push_back(plan.data_bytes);
    plan.data_bytes += padded(tensor.bytes.size());
  }
  plan.text = json_text(Json{{"format", kTextFormat},
                             {"version", kPartVersion},
                             {"layout", layout},
                             {"boxes", std::move(boxes)}});
  return plan;
}

PartWriter PartWriter::create(const fs::path& path, const PartShape& shape,
                              std::string_view text) {
  const uint64_t bytes = shape.file_bytes();
  const auto fail = [&](const char* call, int code) -> void {
    fail_temporary("memory",
                   "{}: {} of {} bytes: {}; free memory on this machine, use more ranks, "
                   "or set resilience.peer_memory_every = 0",
                   path.string(), call, bytes, std::strerror(code));
  };
  const Descriptor file(::open(path.c_str(),
                               O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                               S_IRUSR | S_IWUSR));
  if (!file.is_open()) fail("open", errno);
  // The memory is taken now. A write to a mapped file that finds no memory later would
  // end the process.
  const int full = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  Mapping map;
  if (full == 0) {
    map = Mapping(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get());
  }
  if (!map) {
    const int code = full != 0 ? full : errno;
    ::unlink(path.c_str());
    fail(full != 0 ? "posix_fallocate" : "mmap", code);
  }
  PartWriter part(std::move(map), shape);
  std::memcpy(part.at(kPage), text.data(), text.size());
  return part;
}

void PartWriter::open() {
  std::memset(at(0), 0, sizeof(Seal));
  // The seal must be gone before anything that it covers changes, at whatever moment a
  // kill comes. A kill interrupts the processor between two instructions. So only the
  // order of instructions counts.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

bool PartWriter::write(const std::vector<StateTensor>& tensors, const PartPlan& plan,
                       std::string_view state, int threads) {
  LH_CHECK(tensors.size() == plan.begins.size() && plan.data_bytes == shape_.data_bytes,
           "memory", "{} tensors where {} were planned", tensors.size(),
           plan.begins.size());
  if (state.size() > shape_.room_bytes) return false;
  std::memcpy(at(shape_.room_at()), state.data(), state.size());
  state_bytes_ = state.size();
  std::byte* const data = at(shape_.data_at());
  char* const table = reinterpret_cast<char*>(at(shape_.table_at()));
  by_blocks(shape_.blocks(), threads, [&](uint64_t first, uint64_t end) {
    // `i` becomes the last tensor that begins at or before the first block.
    auto i = static_cast<size_t>(std::upper_bound(plan.begins.begin(), plan.begins.end(),
                                                  first * kHashBlockBytes) -
                                 plan.begins.begin());
    i = i > 0 ? i - 1 : 0;
    for (uint64_t block = first; block < end; ++block) {
      const uint64_t low = block * kHashBlockBytes;
      const uint64_t high = std::min(low + kHashBlockBytes, shape_.data_bytes);
      for (; i < tensors.size() && plan.begins[i] < high; ++i) {
        const uint64_t from = std::max(plan.begins[i], low);
        const uint64_t to = std::min(plan.begins[i] + tensors[i].bytes.size(), high);
        if (from < to) {
          std::memcpy(data + from, tensors[i].bytes.data() + (from - plan.begins[i]),
                      to - from);
        }
        // The rest of the tensor belongs to the next block.
        if (plan.begins[i] + tensors[i].bytes.size() > high) break;
      }
      const std::string hash = hash_hex(std::span(data + low, high - low));
      std::memcpy(table + block * kHashDigits, hash.data(), kHashDigits);
    }
  });
  return true;
}

void PartWriter::seal(const PartLabel& label) {
  const auto hash = [&](uint64_t begin, uint64_t bytes) {
    return hash_hex(std::span(at(begin), bytes));
  };
  Seal seal = {};
  std::memcpy(seal.magic, kMagic, sizeof(kMagic));
  seal.version = kPartVersion;
  seal.owner = static_cast<uint32_t>(label.owner);
  seal.world = static_cast<uint32_t>(label.world);
  seal.attempt = static_cast<uint32_t>(label.attempt);
  seal.step = label.step;
  seal.shape = shape_;
  seal.state_bytes = state_bytes_;
  put(seal.run, label.run);
  put(seal.text_hash, hash(kPage, shape_.text_bytes));
  put(seal.state_hash, hash(shape_.room_at(), state_bytes_));
  put(seal.table_hash, hash(shape_.table_at(), shape_.blocks() * kHashDigits));
  put(seal.self, self_hash(seal));
  std::memcpy(at(0), &seal, sizeof(seal));
}

std::span<std::byte> PartWriter::head() const {
  return {at(shape_.room_at()), shape_.data_at() - shape_.room_at()};
}

std::span<std::byte> PartWriter::data() const {
  return {at(shape_.data_at()), shape_.data_bytes};
}

std::span<std::byte> PartWriter::seal_bytes() const { return {at(0), sizeof(Seal)}; }

PartReader PartReader::open(const fs::path& path) {
  PartReader part;
  part.file_ = MappedFile(path);
  const std::span<const std::byte> bytes = part.file_.bytes();
  Seal seal = {};
  if (bytes.size() < kPage) refuse(path, "the file is too short");
  std::memcpy(&seal, bytes.data(), sizeof(seal));
  if (std::memcmp(seal.magic, kMagic, sizeof(kMagic)) != 0) {
    refuse(path, "the file was being written, or is not a part of a state in memory");
  }
  if (seal.version != kPartVersion) {
    refuse(path, fmt::format("the part has version {}, but this build reads version {}",
                             seal.version, kPartVersion));
  }
  if (self_hash(seal) != std::string_view(seal.self, kHashDigits)) {
    refuse(path, "its seal is damaged");
  }
  part.shape_ = seal.shape;
  for (const uint64_t size :
       {part.shape_.text_bytes, part.shape_.room_bytes, part.shape_.data_bytes}) {
    if (size > kMostBytes)
      refuse(path, fmt::format("its seal names a section of {} bytes", size));
  }
  part.state_bytes_ = seal.state_bytes;
  if (part.shape_.file_bytes() != bytes.size() ||
      seal.state_bytes > seal.shape.room_bytes) {
    refuse(path, fmt::format("the file has {} bytes, but its seal says {}", bytes.size(),
                             part.shape_.file_bytes()));
  }
  part.label_ = {std::string(seal.run, kRunKeyDigits), static_cast<int>(seal.attempt),
                 seal.step, static_cast<int>(seal.owner), static_cast<int>(seal.world)};
  if (seal.world > kMostRanks || seal.owner >= seal.world || seal.step < 0) {
    refuse(path, fmt::format("its seal says step {}, rank {} of {}", seal.step,
                             seal.owner, seal.world));
  }
  const std::string_view table =
      view(bytes.subspan(part.shape_.table_at(), part.shape_.blocks() * kHashDigits));
  if (hash_hex(part.text()) != std::string_view(seal.text_hash, kHashDigits) ||
      hash_hex(part.state()) != std::string_view(seal.state_hash, kHashDigits) ||
      hash_hex(table) != std::string_view(seal.table_hash, kHashDigits)) {
    refuse(path, "its text, state or hashes have changed since they were written");
  }
  return part;
}

std::string_view PartReader::text() const {
  return view(file_.bytes().subspan(kPage, shape_.text_bytes));
}

std::string_view PartReader::state() const {
  return view(file_.bytes().subspan(shape_.room_at(), state_bytes_));
}

std::span<const std::byte> PartReader::data() const {
  return file_.bytes().subspan(shape_.data_at(), shape_.data_bytes);
}

void PartReader::verify(int threads) const {
  const std::span<const std::byte> bytes = data();
  const std::string_view table = view(file_.bytes().subspan(shape_.table_at()));
  std::atomic<uint64_t> damaged = shape_.blocks();
  by_blocks(shape_.blocks(), threads, [&](uint64_t first, uint64_t end) {
    for (uint64_t block = first; block < end; ++block) {
      const uint64_t low = block * kHashBlockBytes;
      const uint64_t length = std::min(kHashBlockBytes, bytes.size() - low);
      if (hash_hex(bytes.subspan(low, length)) ==
          table.substr(block * kHashDigits, kHashDigits)) {
        continue;
      }
      uint64_t known = damaged;
      while (block < known && !damaged.compare_exchange_weak(known, block)) {
      }
      return;
    }
  });
  if (damaged == shape_.blocks()) return;
  refuse(file_.path(),
         fmt::format("block {} (from data byte {} on) has changed since it was written",
                     damaged.load(), damaged * kHashBlockBytes));
}

std::vector<StoredBox> parse_part_text(std::string_view text, uint64_t data_bytes,
                                       const std::string& what) {
  const Json json = parse_json(text, what, 8);
  const JsonFields fields(json, "memory", what);
  if (fields.get<std::string>("format") != kTextFormat ||
      fields.get<uint64_t>("version") != kPartVersion) {
    fields.fail("this build cannot read its text");
  }
  std::vector<StoredBox> boxes;
  for (const Json& box : fields.list("boxes")) {
    boxes.push_back(parse_box(fields.inside(box), data_bytes));
  }
  return boxes;
}

}  // namespace longhaul::checkpoint
