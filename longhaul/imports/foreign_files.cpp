#include "longhaul/imports/foreign_files.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/imports/torch_file.h"

namespace longhaul::imports {
namespace {

constexpr size_t kOpenFiles = 32;
constexpr size_t kNoFile = ~size_t{0};

bool lies_inside(const fs::path& path, const fs::path& root) {
  const auto [end, unused] =
      std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return end == root.end();
}

}  // namespace

ForeignFiles::ForeignFiles(const fs::path& root, system::ChildLimits limits)
    : limits_(limits), mapped_(kNoFile, MappedFile()) {
  if (!root.empty()) root_ = fs::canonical(root);
}

size_t ForeignFiles::add(const fs::path& path) {
  const auto known = numbers_.find(path);
  if (known != numbers_.end()) return known->second;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) fail_input("import", "{}: {}", path.string(), error.message());
  if (!root_.empty() && !lies_inside(real, root_)) {
    fail_input("import", "{}: leads out of {} to {}; copy the file itself there",
               path.string(), root_.string(), real.string());
  }
  if (!is_seen_file(real)) {
    throw InputError("import", path.string() + ": is not a regular file");
  }
  files_.push_back({path, fs::file_size(real)});
  numbers_[path] = files_.size() - 1;
  return files_.size() - 1;
}

std::vector<PickleTree> ForeignFiles::read_trees(
    const std::vector<TorchPart>& parts) const {
  if (parts.empty()) return {};
  const std::string what = path(parts.front().file).string();
  const std::string answer = system::run_in_limited_child(
      what,
      [&] {
        std::string bytes;
        size_t open = kNoFile;
        MappedFile mapped;
        for (const TorchPart& part : parts) {
          if (part.file != open) mapped = MappedFile(path(part.file));
          open = part.file;
          const auto all = mapped.bytes();
          const std::string name = path(part.file).string();
          if (part.begin > all.size() || part.size > all.size() - part.begin) {
            fail_input("import", "{}: bytes {} to {} do not lie in its {} bytes", name,
                       part.begin, part.begin + part.size, all.size());
          }
          read_torch_file(all.subspan(static_cast<size_t>(part.begin),
                                      static_cast<size_t>(part.size)),
                          part.begin, name)
              .serialise(bytes);
        }
        return bytes;
      },
      limits_);
  std::vector<PickleTree> trees;
  size_t position = 0;
  for (const TorchPart& part : parts) {
    PickleTree tree = PickleTree::deserialise(answer, position);
    // The child process has read untrusted bytes, so its answer is checked as well.
    for (const PickleStorage& storage : tree.storages) {
      const bool good = storage.count <= (uint64_t{1} << 62) / 8 &&
                        storage.begin >= part.begin &&
                        storage.begin - part.begin <= part.size &&
                        storage.bytes() <= part.size - (storage.begin - part.begin) &&
                        part.begin + part.size <= size(part.file);
      if (!good) {
        fail_input("import", "{}: storage '{:.40}' lies outside of the file",
                   path(part.file).string(), storage.key);
      }
    }
    for (const PickleTensor& tensor : tree.tensors) {
      const std::string problem = problem_of(tensor, tree.storages[tensor.storage]);
      if (!problem.empty()) {
        throw InputError("import", path(part.file).string() + ": " + problem);
      }
    }
    trees.push_back(std::move(tree));
  }
  return trees;
}

PickleTree ForeignFiles::read_bare_pickle(size_t file) const {
  const std::string what = path(file).string();
  const std::string answer = system::run_in_limited_child(
      what,
      [&] {
        const MappedFile mapped(path(file));
        const PickleTree tree = parse_pickle(mapped.bytes(), what);
        if (!tree.storages.empty()) {
          throw InputError(
              "import",
              what + ": holds tensors, but the metadata of a checkpoint holds none");
        }
        std::string bytes;
        tree.serialise(bytes);
        return bytes;
      },
      limits_);
  size_t position = 0;
  PickleTree tree = PickleTree::deserialise(answer, position);
  if (!tree.tensors.empty()) throw InputError("import", what + ": tensors without data");
  return tree;
}

const File& ForeignFiles::open(size_t file) const {
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (it->first == file) {
      open_.splice(open_.begin(), open_, it);
      return open_.front().second;
    }
  }
  if (open_.size() >= kOpenFiles) open_.pop_back();
  open_.emplace_front(file, File::open_read(path(file)));
  return open_.front().second;
}

void ForeignFiles::read(size_t file, uint64_t offset, std::span<std::byte> bytes) const {
  if (!bytes.empty()) open(file).read_at(offset, bytes);
}

std::span<const std::byte> ForeignFiles::map(size_t file) const {
  if (mapped_.first != file) mapped_ = {file, MappedFile(path(file))};
  if (mapped_.second.bytes().size() < size(file)) {
    fail_input("import", "{}: the file became shorter while it was read; copy it again",
               path(file).string());
  }
  return mapped_.second.bytes();
}

}  // namespace longhaul::imports
