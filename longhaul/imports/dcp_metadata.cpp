#include "longhaul/imports/dcp_metadata.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/imports/foreign_state.h"

namespace longhaul::imports {
namespace {

using Ref = PickleTree::Ref;
using Kind = PickleKind;
using Ints = std::vector<int64_t>;

constexpr std::string_view kClasses = "torch.distributed.checkpoint.metadata.";
constexpr std::string_view kStep = ".step";

struct Chunk {
  std::string tensor;
  Ints offset;
  Ints extent;
  TorchPart part;
};

class Reader {
 public:
  Reader(ForeignFiles& files, const fs::path& dir)
      : files_(files),
        dir_(dir),
        what_((dir / ".metadata").string()),
        tree_(files.read_bare_pickle(files.add(dir / ".metadata"))) {}

  DcpCheckpoint run() {
    list_places(field(tree_.root, "storage_data"));
    list_tensors(field(tree_.root, "state_dict_metadata"));
    read_chunks();
    read_objects();
    for (auto& [name, tensor] : result_.tensors) tensor.check_complete(name);
    return std::move(result_);
  }

 private:
  struct Place {
    std::string file;
    uint64_t offset = 0;
    uint64_t length = 0;
  };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> problem, Args&&... args) const {
    fail_input("import", "{}: {}", what_,
               fmt::format(problem, std::forward<Args>(args)...));
  }

  Ref field(Ref object, std::string_view name) const {
    const auto found = tree_.find(object, name);
    if (!found) {
      fail("{} has no {}; this is not a known form of torch.distributed.checkpoint",
           tree_.describe(object), name);
    }
    return *found;
  }
  Ints ints(Ref ref, std::string_view name) const {
    const auto values = tree_.as_ints(ref);
    if (!values || values->size() > 16) {
      fail("{} is {}, not a list of numbers", name, tree_.describe(ref));
    }
    for (const int64_t value : *values) {
      if (value < 0) fail("{} holds the number {}, which is below 0", name, value);
    }
    return *values;
  }
  uint64_t count(Ref object, std::string_view name) const {
    const auto value = tree_.as_int(field(object, name));
    if (!value || *value < 0) fail("{} is no number", name);
    return static_cast<uint64_t>(*value);
  }
  std::string text(Ref object, std::string_view name) const {
    const auto value = tree_.as_text(field(object, name));
    if (!value) fail("{} is no text", name);
    return std::string(*value);
  }

  // Reads storage_data, which maps a name and the offset of a chunk to file and bytes.
  void list_places(Ref dict) {
    if (!tree_.is(dict, Kind::Dict)) {
      fail("storage_data is {}, not a dict", tree_.describe(dict));
    }
    for (const auto& [key, value] : tree_.entries(dict)) {
      if (!tree_.is(key, Kind::Object)) {
        fail("a key of storage_data is {}", tree_.describe(key));
      }
      Ints offset;
      const auto at = tree_.find(key, "offset");
      if (at && !tree_.is(*at, Kind::None)) offset = ints(*at, "offset");
      const auto transforms = tree_.find(value, "transform_descriptors");
      if (transforms && !tree_.is(*transforms, Kind::None)) {
        fail("its tensors are compressed, which is not supported");
      }
      places_[{text(key, "fqn"), offset}] = {
          text(value, "relative_path"), count(value, "offset"), count(value, "length")};
    }
  }

  void list_tensors(Ref dict) {
    if (!tree_.is(dict, Kind::Dict)) {
      fail("state_dict_metadata is {}, not a dict", tree_.describe(dict));
    }
    for (const auto& [key, value] : tree_.entries(dict)) {
      const auto name = tree_.as_text(key);
      if (!name || !tree_.is(value, Kind::Object)) {
        fail("the entry of {} in state_dict_metadata has an unknown form",
             tree_.describe(key));
      }
      const std::string& type = tree_.object_class(value);
      if (type == std::string(kClasses) + "TensorStorageMetadata") {
        list_chunks(std::string(*name), value);
      } else {
        result_.objects.emplace_back(*name);
        list_object(std::string(*name));
      }
    }
  }

  /// Notes a pickled object, which is read only if it is a count of updates.
  void list_object(const std::string& name) {
    if (!name.ends_with(kStep)) return;
    const auto place = places_.find({name, {}});
    if (place == places_.end()) fail("nothing says where {:.100} lies", name);
    const fs::path path = join_inside(dir_, place->second.file, "import");
    objects_.emplace_back(
        name, TorchPart{files_.add(path), place->second.offset, place->second.length});
  }

  void list_chunks(const std::string& name, Ref tensor) {
    shapes_[name] = ints(field(tensor, "size"), "size");
    const Ref chunks = field(tensor, "chunks");
    if (!tree_.is(chunks, Kind::List)) {
      fail("chunks is {}, not a list", tree_.describe(chunks));
    }
    for (const Ref ref : tree_.items(chunks)) {
      Chunk chunk;
      chunk.tensor = name;
      chunk.offset = ints(field(ref, "offsets"), "offsets");
      chunk.extent = ints(field(ref, "sizes"), "sizes");
      const Ints& shape = shapes_[name];
      bool good =
          chunk.offset.size() == shape.size() && chunk.extent.size() == shape.size();
      bool empty = false;
      for (size_t d = 0; good && d < shape.size(); ++d) {
        good =
            chunk.offset[d] <= shape[d] && chunk.extent[d] <= shape[d] - chunk.offset[d];
        empty = empty || chunk.extent[d] == 0;
      }
      if (!good) {
        fail("{:.100}: the chunk {} at {} does not lie in {}", name,
             format::describe_shape(chunk.extent), format::describe_shape(chunk.offset),
             format::describe_shape(shape));
      }
      if (empty) continue;
      const auto place = places_.find({name, chunk.offset});
      if (place == places_.end()) {
        fail("{:.100}: nothing says where the chunk at {} lies", name,
             format::describe_shape(chunk.offset));
      }
      const fs::path path = join_inside(dir_, place->second.file, "import");
      chunk.part = {files_.add(path), place->second.offset, place->second.length};
      chunks_.push_back(std::move(chunk));
    }
  }

  void read_chunks() {
    std::vector<TorchPart> parts;
    for (const Chunk& chunk : chunks_) parts.push_back(chunk.part);
    std::vector<PickleTree> trees = files_.read_trees(parts);
    for (size_t i = 0; i < chunks_.size(); ++i) {
      const Chunk& chunk = chunks_[i];
      const ForeignState state(std::move(trees[i]), chunk.part.file);
      const auto stored = state.tensor(state.root());
      if (!stored || stored->shape != chunk.extent) {
        fail("{:.100}: the chunk {} in {} holds {} {}", chunk.tensor,
             format::describe_shape(chunk.extent), files_.path(chunk.part.file).string(),
             state.tree().describe(state.root()),
             stored ? format::describe_shape(stored->shape) : "");
      }
      const auto [whole, added] = result_.tensors.try_emplace(
          chunk.tensor, Mosaic(shapes_.at(chunk.tensor), stored->dtype));
      if (whole->second.dtype() != stored->dtype) {
        fail("{}: its chunks have several dtypes", chunk.tensor);
      }
      whole->second.put(Mosaic(*stored), Ints(chunk.extent.size(), 0), chunk.extent,
                        chunk.offset);
      if (chunk.tensor.ends_with(kStep)) take_step(chunk.tensor, state);
    }
    for (const auto& [name, shape] : shapes_) {
      if (!result_.tensors.contains(name)) fail("{}: a tensor without chunks", name);
    }
  }

  void read_objects() {
    std::vector<TorchPart> parts;
    for (const auto& [name, part] : objects_) parts.push_back(part);
    std::vector<PickleTree> trees = files_.read_trees(parts);
    for (size_t i = 0; i < objects_.size(); ++i) {
      take_step(objects_[i].first,
                ForeignState(std::move(trees[i]), objects_[i].second.file));
    }
  }

  /// Takes a count of updates, if it is a number. Users of counts report missing ones.
  void take_step(const std::string& name, const ForeignState& state) {
    const auto step = state.number(files_, state.root());
    if (step) result_.steps[name] = *step;
  }

  ForeignFiles& files_;
  const fs::path& dir_;
  std::string what_;
  PickleTree tree_;
  std::map<std::pair<std::string, Ints>, Place> places_;
  std::map<std::string, Ints> shapes_;
  std::vector<Chunk> chunks_;
  std::vector<std::pair<std::string, TorchPart>> objects_;
  DcpCheckpoint result_;
};

}  // namespace

DcpCheckpoint read_dcp(ForeignFiles& files, const fs::path& dir) {
  return Reader(files, dir).run();
}

}  // namespace longhaul::imports
