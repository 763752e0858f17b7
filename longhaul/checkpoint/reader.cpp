#include "longhaul/checkpoint/reader.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <tuple>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/rank_file.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/backend.h"

namespace longhaul::checkpoint {
namespace {

// The text of a small file whose size and hash the manifest gives.
std::string read_hashed(const fs::path& dir, const Manifest::FileEntry& entry) {
  const fs::path path = join_inside(dir, entry.name, "checkpoint");
  std::string text = read_text(path);
  BlockHasher hasher;
  hasher.update(std::as_bytes(std::span(text)));
  const std::string found = combine_hashes(hasher.finish());
  if (found != entry.hash) {
    throw InputError("checkpoint",
                     fmt::format("{}: has hash {}, the manifest says {}; the file has "
                                 "changed since, use another checkpoint",
                                 path.string(), found, entry.hash));
  }
  return text;
}

/// InputError when a file is absent or has another size than the manifest says.
void check_size(const fs::path& dir, const Manifest::FileEntry& entry) {
  Manifest one;
  one.state = entry;
  one.ranks.clear();
  check_file_sizes(dir, one);
}

bool overlap(const std::vector<int64_t>& a, const std::vector<int64_t>& a_extent,
             const std::vector<int64_t>& b, const std::vector<int64_t>& b_extent) {
  for (size_t d = 0; d < a.size(); ++d) {
    if (std::max(a[d], b[d]) >= std::min(a[d] + a_extent[d], b[d] + b_extent[d])) {
      return false;
    }
  }
  return true;
}

}  // namespace

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
  const std::string manifest =
      comm::on_rank_zero(node, [&] { return Manifest::read(step_dir).to_json().dump(); });
  const std::string what = (step_dir / kManifestName).string();
  reader.manifest_ = Manifest::from_json(parse_json(manifest, what), what);
  reader.load_small_files(node);
  // The same on all ranks, whose errors are then the same too.
  reader.check_tiling(tensors);
  return reader;
}

void CheckpointReader::load_small_files(comm::Communicator& node) {
  const std::string state = comm::on_rank_zero(node, [&] {
    check_size(dir_, manifest_.state);
    for (const Manifest::FileEntry& file : manifest_.hf) {
      check_size(dir_, file);
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
      check_size(dir_, manifest_.ranks[mine].data);
      check_size(dir_, manifest_.ranks[mine].sidecar);
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
    throw InputError("checkpoint",
                     fmt::format("{}: its block hashes are not those of the manifest",
                                 (dir_ / entry.sidecar.name).string()));
  }
  auto file = std::make_unique<RankFile>();
  file->path = join_inside(dir_, entry.data.name, "checkpoint");
  file->size = entry.data.size;
  file->block_hashes = std::move(sidecar.block_hashes);
  files_.push_back(std::move(file));
  for (StoredBox& box : sidecar.boxes) {
    Tensor& tensor = tensors_[{box.kind, box.slice.name}];
    TensorSlice& slice = box.slice;
    if (tensor.pieces.empty()) {
      tensor.whole = TensorSlice::whole(slice.name, slice.global_shape, slice.dtype);
    }
    if (tensor.whole.global_shape != slice.global_shape ||
        tensor.whole.dtype != slice.dtype) {
      throw InputError(
          "checkpoint",
          fmt::format("{}: {} of {} has another shape or dtype than in an "
                      "earlier rank's file",
                      (dir_ / entry.sidecar.name).string(), box.kind, slice.name));
    }
    tensor.pieces.push_back(
        {std::move(slice.offset), std::move(slice.extent), files_.size() - 1, box.begin});
  }
}

TensorSlice CheckpointReader::Tensor::slice(const Piece& piece) const {
  TensorSlice result = whole;
  result.offset = piece.offset;
  result.extent = piece.extent;
  return result;
}

// Copies of one box (replicas) are dropped; the rest must tile the tensor.
void CheckpointReader::check_tiling(Tensors tensors) {
  for (auto& [key, tensor] : tensors_) {
    std::vector<Piece>& pieces = tensor.pieces;
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.offset, a.extent) < std::tie(b.offset, b.extent);
    });
    pieces.erase(std::unique(pieces.begin(), pieces.end(),
                             [](const Piece& a, const Piece& b) {
                               return a.offset == b.offset && a.extent == b.extent;
                             }),
                 pieces.end());
    int64_t elements = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      elements += tensor.slice(piece).num_elements();
      if (piece.extent.empty()) continue;
      const int64_t end = piece.offset[0] + piece.extent[0];
      for (size_t j = i + 1; j < pieces.size() && pieces[j].offset[0] < end; ++j) {
        if (overlap(piece.offset, piece.extent, pieces[j].offset, pieces[j].extent)) {
          throw InputError(
              "checkpoint",
              fmt::format("{}: {}: the boxes {} and {} overlap", dir_.string(), key.first,
                          describe_slice(tensor.slice(piece)),
                          describe_slice(tensor.slice(pieces[j]))));
        }
      }
    }
    const int64_t wanted = tensor.whole.num_elements();
    if (elements != wanted && tensors == Tensors::Whole) {
      throw InputError(
          "checkpoint",
          fmt::format("{}: {} of {} has {} of {} elements; a rank's file lacks "
                      "its part",
                      dir_.string(), key.first, key.second, elements, wanted));
    }
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

std::vector<TensorSlice> CheckpointReader::tensors(const std::string& kind) const {
  std::vector<TensorSlice> result;
  for (const auto& [key, tensor] : tensors_) {
    if (key.first == kind) result.push_back(tensor.whole);
  }
  return result;
}

bool CheckpointReader::has(const std::string& kind, const std::string& name) const {
  return tensors_.contains({kind, name});
}

std::vector<std::pair<std::string, std::string>> CheckpointReader::names() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [key, tensor] : tensors_) result.push_back(key);
  return result;
}

std::vector<TensorSlice> CheckpointReader::boxes(const std::string& kind,
                                                 const std::string& name) const {
  std::vector<TensorSlice> result;
  const auto found = tensors_.find({kind, name});
  if (found == tensors_.end()) return result;
  for (const Piece& piece : found->second.pieces) {
    result.push_back(found->second.slice(piece));
  }
  return result;
}

const CheckpointReader::Tensor& CheckpointReader::find(const std::string& kind,
                                                       const TensorSlice& box) const {
  const auto found = tensors_.find({kind, box.name});
  if (found == tensors_.end()) {
    throw InputError("checkpoint",
                     fmt::format("{}: no {} of '{}'", dir_.string(), kind, box.name));
  }
  const TensorSlice& whole = found->second.whole;
  if (whole.global_shape != box.global_shape) {
    throw InputError("checkpoint", fmt::format("{}: {} of '{}' has shape {}, expected {}",
                                               dir_.string(), kind, box.name,
                                               describe_shape(whole.global_shape),
                                               describe_shape(box.global_shape)));
  }
  return found->second;
}

std::vector<StoredTensors::Part> CheckpointReader::parts_of(
    const std::string& kind, const TensorSlice& box) const {
  const Tensor& tensor = find(kind, box);
  std::vector<Part> parts;
  for (const Piece& piece : tensor.pieces) {
    if (overlap(piece.offset, piece.extent, box.offset, box.extent)) {
      parts.push_back({tensor.slice(piece), piece.file, piece.begin});
    }
  }
  return parts;
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
  for (const auto& file : files_) file->open();
}

void CheckpointReader::read(const std::string& kind, const TensorSlice& box, DType dst,
                            std::span<std::byte> out) const {
  const Tensor& tensor = find(kind, box);
  const DType stored = tensor.whole.dtype;
  if (stored != dst && !(is_float(stored) && is_float(dst))) {
    throw InputError(
        "checkpoint",
        fmt::format("{}: {} of '{}' is {}, which does not convert to {}", dir_.string(),
                    kind, box.name, dtype_name(stored), dtype_name(dst)));
  }
  TensorSlice wanted = box;
  wanted.dtype = dst;
  int64_t copied = 0;
  for (const Part& part : parts_of(kind, box)) {
    const RankFile& file = *files_[part.file];
    copied += read_box(
        [&](uint64_t offset, std::span<std::byte> bytes) {
          read_verified(file.open(), file.size, file.block_hashes, part.begin + offset,
                        bytes);
        },
        part.slice, wanted, out);
  }
  LH_ASSERT(copied == wanted.num_elements(), "{} of {}: {} elements copied", kind,
            describe_slice(box), copied);
}

void CheckpointReader::read_flat_range(const std::string& kind, const TensorSlice& slice,
                                       int64_t begin, int64_t end, DType dst,
                                       std::span<std::byte> out) const {
  LH_CHECK(out.size() == static_cast<size_t>(end - begin) * dtype_size(dst), "checkpoint",
           "{}: {} bytes for elements {} to {}", slice.name, out.size(), begin, end);
  size_t position = 0;
  for (const TensorSlice& box : flat_range_boxes(slice, begin, end)) {
    const size_t bytes = static_cast<size_t>(box.num_elements()) * dtype_size(dst);
    read(kind, box, dst, out.subspan(position, bytes));
    position += bytes;
  }
}

uint64_t CheckpointReader::verify() const {
  uint64_t total = 0;
  std::vector<std::byte> buffer(16 * kHashBlockBytes);
  for (const auto& file : files_) {
    for (uint64_t at = 0; at < file->size; at += buffer.size()) {
      const uint64_t n = std::min<uint64_t>(buffer.size(), file->size - at);
      read_verified(file->open(), file->size, file->block_hashes, at,
                    std::span(buffer).first(n));
      total += n;
    }
  }
  for (const Manifest::RankEntry& rank : manifest_.ranks) {
    total += read_hashed(dir_, rank.sidecar).size();
  }
  total += read_hashed(dir_, manifest_.state).size();
  for (const Manifest::FileEntry& file : manifest_.hf) {
    total += read_hashed(dir_, file).size();
  }
  return total;
}

}  // namespace longhaul::checkpoint
