#include "longhaul/checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/rank_file.h"

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

bool same_place(const TensorSlice& a, const TensorSlice& b) {
  return a.offset == b.offset && a.extent == b.extent;
}

}  // namespace

struct CheckpointReader::RankFile {
  File file;
  uint64_t size = 0;
  std::vector<std::string> block_hashes;
};

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

CheckpointReader CheckpointReader::open(const fs::path& step_dir, Tensors tensors) {
  CheckpointReader reader;
  reader.dir_ = step_dir;
  reader.manifest_ = Manifest::read(step_dir);
  check_file_sizes(step_dir, reader.manifest_);
  reader.state_ = parse_json(read_hashed(step_dir, reader.manifest_.state),
                             (step_dir / reader.manifest_.state.name).string());
  for (const Manifest::FileEntry& file : reader.manifest_.hf) read_hashed(step_dir, file);
  for (const Manifest::RankEntry& rank : reader.manifest_.ranks) reader.load_rank(rank);
  reader.check_tiling(tensors);
  return reader;
}

void CheckpointReader::load_rank(const Manifest::RankEntry& entry) {
  const std::string text = read_hashed(dir_, entry.sidecar);
  Sidecar sidecar =
      Sidecar::parse(text, entry.data.size, (dir_ / entry.sidecar.name).string());
  if (combine_hashes(sidecar.block_hashes) != entry.data.hash) {
    throw InputError("checkpoint",
                     fmt::format("{}: its block hashes are not those of the manifest",
                                 (dir_ / entry.sidecar.name).string()));
  }
  auto file = std::make_unique<RankFile>();
  file->file = File::open_read(join_inside(dir_, entry.data.name, "checkpoint"));
  file->size = entry.data.size;
  file->block_hashes = std::move(sidecar.block_hashes);
  files_.push_back(std::move(file));
  for (StoredBox& box : sidecar.boxes) {
    std::vector<Piece>& pieces = pieces_[{box.kind, box.slice.name}];
    if (!pieces.empty() && (pieces.front().slice.global_shape != box.slice.global_shape ||
                            pieces.front().slice.dtype != box.slice.dtype)) {
      throw InputError(
          "checkpoint",
          fmt::format("{}: {} of {} has another shape or dtype than in an "
                      "earlier rank's file",
                      (dir_ / entry.sidecar.name).string(), box.kind, box.slice.name));
    }
    pieces.push_back({std::move(box.slice), files_.size() - 1, box.begin});
  }
}

// Copies of one box (replicas) are dropped; the rest must tile the tensor.
void CheckpointReader::check_tiling(Tensors tensors) {
  for (auto& [key, pieces] : pieces_) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.slice.offset, a.slice.extent) <
             std::tie(b.slice.offset, b.slice.extent);
    });
    pieces.erase(std::unique(pieces.begin(), pieces.end(),
                             [](const Piece& a, const Piece& b) {
                               return same_place(a.slice, b.slice);
                             }),
                 pieces.end());
    int64_t elements = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const TensorSlice& slice = pieces[i].slice;
      elements += slice.num_elements();
      if (slice.extent.empty()) continue;
      const int64_t end = slice.offset[0] + slice.extent[0];
      for (size_t j = i + 1; j < pieces.size() && pieces[j].slice.offset[0] < end; ++j) {
        if (intersect(slice, pieces[j].slice)) {
          throw InputError(
              "checkpoint",
              fmt::format("{}: {}: the boxes {} and {} overlap", dir_.string(), key.first,
                          describe_slice(slice), describe_slice(pieces[j].slice)));
        }
      }
    }
    const int64_t wanted = pieces.front().slice.global_num_elements();
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
  for (const auto& [key, pieces] : pieces_) {
    if (key.first != kind) continue;
    const TensorSlice& slice = pieces.front().slice;
    result.push_back(TensorSlice::whole(slice.name, slice.global_shape, slice.dtype));
  }
  return result;
}

bool CheckpointReader::has(const std::string& kind, const std::string& name) const {
  return pieces_.contains({kind, name});
}

std::vector<std::pair<std::string, std::string>> CheckpointReader::names() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [key, pieces] : pieces_) result.push_back(key);
  return result;
}

std::vector<TensorSlice> CheckpointReader::boxes(const std::string& kind,
                                                 const std::string& name) const {
  std::vector<TensorSlice> result;
  const auto found = pieces_.find({kind, name});
  if (found == pieces_.end()) return result;
  for (const Piece& piece : found->second) result.push_back(piece.slice);
  return result;
}

void CheckpointReader::read(const std::string& kind, const TensorSlice& box, DType dst,
                            std::span<std::byte> out) const {
  const auto found = pieces_.find({kind, box.name});
  if (found == pieces_.end()) {
    throw InputError("checkpoint",
                     fmt::format("{}: no {} of '{}'", dir_.string(), kind, box.name));
  }
  const TensorSlice& first = found->second.front().slice;
  if (first.global_shape != box.global_shape) {
    throw InputError("checkpoint", fmt::format("{}: {} of '{}' has shape {}, expected {}",
                                               dir_.string(), kind, box.name,
                                               describe_shape(first.global_shape),
                                               describe_shape(box.global_shape)));
  }
  if (first.dtype != dst && !(is_float(first.dtype) && is_float(dst))) {
    throw InputError(
        "checkpoint",
        fmt::format("{}: {} of '{}' is {}, which does not convert to {}", dir_.string(),
                    kind, box.name, dtype_name(first.dtype), dtype_name(dst)));
  }
  TensorSlice wanted = box;
  wanted.dtype = dst;
  int64_t copied = 0;
  for (const Piece& piece : found->second) {
    const RankFile& file = *files_[piece.file];
    copied += read_box(
        [&](uint64_t offset, std::span<std::byte> bytes) {
          read_verified(file.file, file.size, file.block_hashes, piece.offset + offset,
                        bytes);
        },
        piece.slice, wanted, out);
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
      read_verified(file->file, file->size, file->block_hashes, at,
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
