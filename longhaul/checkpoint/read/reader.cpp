#include "longhaul/checkpoint/read/reader.h"

#include <fcntl.h>

#include <mutex>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/rank_file.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/backend.h"
#include "longhaul/run/files.h"
#include "longhaul/system/open_files.h"

namespace longhaul::checkpoint {
namespace {

// Returns the text of a small file whose size and hash the manifest gives.
std::string read_hashed(const fs::path& dir, const Manifest::FileEntry& entry) {
  const fs::path path = join_inside(dir, entry.name, "checkpoint");
  std::string text = read_text(path);
  const std::string found = Manifest::FileEntry::of(entry.name, text).hash;
  if (found != entry.hash) {
    fail_input("checkpoint",
               "{}: has hash {}, but the manifest says {}; the file has changed since; "
               "use another checkpoint",
               path.string(), found, entry.hash);
  }
  return text;
}

}  // namespace

Json read_state(const fs::path& step_dir) {
  const Manifest::FileEntry state = Manifest::read(step_dir).state;
  return parse_json(read_hashed(step_dir, state), (step_dir / state.name).string());
}

struct CheckpointReader::RankFile {
  fs::path path;
  uint64_t size = 0;
  std::string block_hashes;
  mutable std::once_flag opened;
  mutable File file;

  const File& open() const {
    std::call_once(opened, [&] { file = File::open_read(path); });
    return file;
  }
};

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

CheckpointReader CheckpointReader::open(const fs::path& step_dir, Tensors tensors) {
  return open(step_dir, *comm::self_world("reader"), tensors);
}

CheckpointReader CheckpointReader::open(const fs::path& step_dir,
                                        comm::Communicator& node, Tensors tensors) {
  CheckpointReader reader;
  reader.dir_ = step_dir;
  const std::string manifest = comm::on_rank_zero(
      node, [&] { return json_text(Manifest::read(step_dir).to_json()); });
  const std::string what = (step_dir / run::kManifestFile).string();
  reader.manifest_ = Manifest::from_json(parse_json(manifest, what), what);
  reader.load_small_files(node);
  // All ranks have the same table, so their errors are the same too.
  reader.table_.settle(tensors == Tensors::Whole, step_dir.string());
  // A data file is opened when it is first read, and stays open. So all of them may be
  // open at once.
  system::allow_open_files(reader.files_.size());
  return reader;
}

void CheckpointReader::load_small_files(comm::Communicator& node) {
  const std::string state = comm::on_rank_zero(node, [&] {
    check_file_size(dir_, manifest_.state);
    for (const Manifest::FileEntry& file : manifest_.hf) {
      check_file_size(dir_, file);
      read_hashed(dir_, file);
    }
    return read_hashed(dir_, manifest_.state);
  });
  state_ = parse_json(state, (dir_ / manifest_.state.name).string());
  const auto ranks = static_cast<size_t>(node.size());
  for (size_t first = 0; first < manifest_.ranks.size(); first += ranks) {
    const size_t mine = first + static_cast<size_t>(node.rank());
    std::string text;
    comm::on_all_ranks(node, [&] {
      if (mine >= manifest_.ranks.size()) return;
      check_file_size(dir_, manifest_.ranks[mine].data);
      check_file_size(dir_, manifest_.ranks[mine].sidecar);
      text = read_hashed(dir_, manifest_.ranks[mine].sidecar);
    });
    const std::vector<std::string> texts = node.gather_strings(text);
    for (size_t r = 0; r < ranks && first + r < manifest_.ranks.size(); ++r) {
      add_rank(manifest_.ranks[first + r], texts[r]);
    }
  }
}

void CheckpointReader::add_rank(const Manifest::RankEntry& entry, std::string_view text) {
  Sidecar sidecar =
      Sidecar::parse(text, entry.data.size, (dir_ / entry.sidecar.name).string());
  if (hash_hex(sidecar.block_hashes) != entry.data.hash) {
    fail_input("checkpoint",
               "{}: its block hashes are not the hashes that the manifest names",
               (dir_ / entry.sidecar.name).string());
  }
  auto file = std::make_unique<RankFile>();
  file->path = join_inside(dir_, entry.data.name, "checkpoint");
  file->size = entry.data.size;
  file->block_hashes = std::move(sidecar.block_hashes);
  files_.push_back(std::move(file));
  const std::string what = (dir_ / entry.sidecar.name).string();
  for (StoredBox& box : sidecar.boxes) {
    table_.add(files_.size() - 1, std::move(box), what);
  }
}

std::vector<CarriedFile> CheckpointReader::hf_files() const {
  std::vector<CarriedFile> files;
  for (const Manifest::FileEntry& file : manifest_.hf) {
    const fs::path path = join_inside(dir_, file.name, "checkpoint");
    files.push_back(
        {fs::path(file.name).lexically_relative(manifest_.hf_dir).string(), path, {}});
  }
  return files;
}

std::vector<format::TensorSlice> CheckpointReader::tensors(
    const std::string& kind) const {
  std::vector<format::TensorSlice> result;
  for (const auto& [key, tensor] : table_.tensors()) {
    if (key.first == kind) result.push_back(tensor.whole);
  }
  return result;
}

std::vector<std::pair<std::string, std::string>> CheckpointReader::names() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [key, tensor] : table_.tensors()) result.push_back(key);
  return result;
}

std::vector<format::TensorSlice> CheckpointReader::boxes(const std::string& kind,
                                                         const std::string& name) const {
  std::vector<format::TensorSlice> result;
  const auto found = table_.tensors().find({kind, name});
  if (found == table_.tensors().end()) return result;
  for (const BoxTable::Piece& piece : found->second.pieces) {
    result.push_back(found->second.slice(piece));
  }
  return result;
}

std::vector<StoredTensors::Part> CheckpointReader::parts_of(
    const std::string& kind, const format::TensorSlice& box) const {
  return table_.parts_of(kind, box, dir_.string());
}

uint64_t CheckpointReader::file_size(size_t file) const { return files_[file]->size; }

void CheckpointReader::read_blocks(size_t file, uint64_t offset,
                                   std::span<std::byte> bytes) const {
  const RankFile& f = *files_[file];
  read_verified(f.open(), f.size, f.block_hashes, offset, bytes);
}

void CheckpointReader::will_read(size_t file, uint64_t offset, uint64_t bytes) const {
  ::posix_fadvise(files_[file]->open().fd(), static_cast<off_t>(offset),
                  static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

void CheckpointReader::hold_files() const {
  system::need_open_files(files_.size(), "checkpoint", dir_.string());
  for (const auto& file : files_) file->open();
}

void CheckpointReader::read(const std::string& kind, const format::TensorSlice& box,
                            format::DType dst, std::span<std::byte> out) const {
  const format::DType stored = table_.find(kind, box, dir_.string()).whole.dtype;
  if (stored != dst && !(format::is_float(stored) && format::is_float(dst))) {
    fail_input("checkpoint", "{}: {} of '{}' is {}, which does not convert to {}",
               dir_.string(), kind, box.name, format::dtype_name(stored),
               format::dtype_name(dst));
  }
  format::TensorSlice wanted = box;
  wanted.dtype = dst;
  int64_t copied = 0;
  for (const Part& part : parts_of(kind, box)) {
    copied += format::read_box(
        [&](uint64_t offset, std::span<std::byte> bytes) {
          read_blocks(part.file, part.begin + offset, bytes);
        },
        part.slice, wanted, out);
  }
  LH_ASSERT(copied == wanted.num_elements(), "{} of {}: {} elements copied", kind,
            format::describe_slice(box), copied);
}

void CheckpointReader::read_flat_range(const std::string& kind,
                                       const format::TensorSlice& slice, int64_t begin,
                                       int64_t end, format::DType dst,
                                       std::span<std::byte> out) const {
  for_each_box(slice, begin, end, dst, out,
               [&](const auto& box, auto bytes) { read(kind, box, dst, bytes); });
}

uint64_t CheckpointReader::verify() const {
  uint64_t total = 0;
  for (const auto& file : files_) {
    verify_blocks(file->open(), file->size, file->block_hashes);
    total += file->size;
  }
  std::vector<Manifest::FileEntry> small;
  for (const Manifest::RankEntry& rank : manifest_.ranks) small.push_back(rank.sidecar);
  small.push_back(manifest_.state);
  small.insert(small.end(), manifest_.hf.begin(), manifest_.hf.end());
  for (const Manifest::FileEntry& file : small) total += read_hashed(dir_, file).size();
  return total;
}

}  // namespace longhaul::checkpoint
