#include "longhaul/checkpoint/hf/adapted_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/hf/adapted_base.h"
#include "longhaul/checkpoint/hf/peft.h"
#include "longhaul/comm/agree.h"
#include "longhaul/families/adapter.h"
#include "longhaul/families/model_config.h"

namespace longhaul::checkpoint {
namespace {

/// Elements of a matrix that are in memory at a time.
constexpr int64_t kElementsOfBlock = int64_t{1} << 22;

/// Returns elements of a source in fp32, row-major.
std::vector<float> floats_of(const WeightsSource& source,
                             const format::TensorSlice& box) {
  std::vector<float> values(static_cast<size_t>(box.num_elements()));
  source.read(box, format::DType::F32, std::as_writable_bytes(std::span(values)));
  return values;
}

void write_floats(std::span<const float> values, format::DType dst,
                  std::span<std::byte> out) {
  format::convert_elements(std::as_bytes(values).data(), format::DType::F32, out.data(),
                           dst, values.size());
}

/// Returns rows [begin, begin + count) of a matrix.
format::TensorSlice rows_of(const std::string& name, const std::vector<int64_t>& shape,
                            int64_t begin, int64_t count) {
  format::TensorSlice box = format::TensorSlice::whole(name, shape, format::DType::F32);
  box.offset[0] = begin;
  box.extent[0] = count;
  return box;
}

/// Calls use(first row, rows, values in fp32) for blocks of rows [begin, begin + count).
template <typename Use>
void for_row_blocks(int64_t begin, int64_t count, int64_t width, const Use& use) {
  const int64_t most = std::max<int64_t>(1, kElementsOfBlock / width);
  for (int64_t row = begin; row < begin + count; row += most) {
    use(row, std::min(most, begin + count - row));
  }
}

double length_of(std::span<const float> row) {
  double squares = 0.0;
  for (const float value : row) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

class AdaptedSource final : public AdaptedBase {
 public:
  AdaptedSource(SharedSource base, AdapterValues values, const ModelDescription& model)
      : AdaptedBase(std::move(base)), values_(std::move(values)) {
    for (const ParameterDescription& p : model.parameters()) {
      const bool own = families::is_of_adapter(p.name);
      if (own || (values_.files && p.trained)) added_.emplace(p.name, p);
    }
  }

  std::vector<format::TensorSlice> tensors() const override {
    std::map<std::string, format::TensorSlice> all;
    for (const format::TensorSlice& tensor : base()->tensors()) {
      all.emplace(tensor.name, tensor);
    }
    std::map<std::string, format::DType> dtypes;  // a name of the base keeps the base's
    for (const auto& [name, tensor] : all) dtypes.emplace(name, tensor.dtype);
    if (values_.files) {
      for (const format::TensorSlice& tensor : values_.files->tensors()) {
        dtypes.emplace(tensor.name, tensor.dtype);
      }
    }
    for (const auto& [name, p] : added_) {
      const auto dtype = dtypes.emplace(name, format::DType::F32).first->second;
      all[name] = format::TensorSlice::whole(name, p.shape, dtype);
    }
    std::vector<format::TensorSlice> list;
    for (const auto& [name, tensor] : all) list.push_back(tensor);
    return list;
  }
  bool as_stored(const std::string& name) const override {
    return !added_.contains(name) && base()->as_stored(name);
  }
  std::vector<std::string> origins(const std::string& name) const override {
    return added_.contains(name) ? std::vector<std::string>{name} : base()->origins(name);
  }
  const WeightsSource& files() const override { return *this; }
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override {
    const auto found = added_.find(box.name);
    if (found == added_.end()) return base()->read(box, dst, out);
    if (values_.files) return values_.files->read(box, dst, out);
    const ParameterDescription& p = found->second;
    std::vector<float> values(static_cast<size_t>(box.num_elements()));
    if (p.init.kind == Init::Kind::RowLengths) {
      fill_lengths(p, box, values);
    } else {
      values_.first(p, box, values);
    }
    write_floats(values, dst, out);
  }
  // The config.json of a run's checkpoint has the run's overrides.
  fs::path config_path() const override {
    return is_of_run() ? values_.files->config_path() : base()->config_path();
  }
  std::vector<CarriedFile> files_to_carry() const override {
    if (!is_of_run()) return base()->files_to_carry();
    std::vector<CarriedFile> files = values_.files->files_to_carry();
    std::erase_if(files,
                  [](const CarriedFile& file) { return file.name == kPeftConfig; });
    return files;
  }
  SharedSource on(SharedSource base) const override {
    auto copy = std::make_shared<AdaptedSource>(*this);
    copy->set_base(std::move(base));
    return copy;
  }

 private:
  bool is_of_run() const {
    return values_.files && values_.files->source().kind == ModelSource::Kind::Checkpoint;
  }
  /// Fills the lengths of the rows of the weight beside this parameter. The low-rank part
  /// adds nothing to the weight at first.
  void fill_lengths(const ParameterDescription& p, const format::TensorSlice& box,
                    std::span<float> out) const {
    const std::string name = families::module_of(p.name) + ".weight";
    const std::vector<format::TensorSlice> all = base()->tensors();
    const auto weight = std::ranges::find(all, name, &format::TensorSlice::name);
    LH_ASSERT(weight != all.end(), "{} is beside no {}", p.name, name);
    const std::vector<int64_t>& shape = weight->global_shape;
    for_row_blocks(
        box.offset[0], box.extent[0], shape[1], [&](int64_t row, int64_t count) {
          const auto rows = floats_of(*base(), rows_of(name, shape, row, count));
          const auto width = static_cast<size_t>(shape[1]);
          for (int64_t i = 0; i < count; ++i) {
            out[static_cast<size_t>(row + i - box.offset[0])] =
                static_cast<float>(length_of(
                    std::span(rows).subspan(static_cast<size_t>(i) * width, width)));
          }
        });
  }

  AdapterValues values_;
  std::map<std::string, ParameterDescription> added_;  ///< what is not the base's
};

class MergedSource final : public AdaptedBase {
 public:
  MergedSource(SharedSource adapted, const ModelConfig& model)
      : AdaptedBase(std::move(adapted)) {
    for (const families::NamedLinear& one : families::linear_layers(model.network)) {
      if (one.layer->adapter) layers_.emplace(one.layer->name + ".weight", *one.layer);
    }
  }
  std::vector<format::TensorSlice> tensors() const override {
    std::vector<format::TensorSlice> all = base()->tensors();
    std::erase_if(all, [](const auto& t) { return families::is_of_adapter(t.name); });
    return all;
  }
  bool as_stored(const std::string& name) const override {
    return !layers_.contains(name) && base()->as_stored(name);
  }
  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override {
    const auto found = layers_.find(box.name);
    if (found == layers_.end()) return base()->read(box, dst, out);
    const int64_t width = box.global_shape[1];
    const auto size = static_cast<int64_t>(format::dtype_size(dst));
    for_row_blocks(box.offset[0], box.extent[0], width, [&](int64_t row, int64_t count) {
      const std::vector<float> rows = merged_rows(found->second, box, row, count);
      std::vector<float> wanted;
      for (int64_t i = 0; i < count; ++i) {
        const auto from = rows.begin() + i * width + box.offset[1];
        wanted.insert(wanted.end(), from, from + box.extent[1]);
      }
      const int64_t at = (row - box.offset[0]) * box.extent[1] * size;
      write_floats(wanted, dst,
                   out.subspan(static_cast<size_t>(at),
                               wanted.size() * static_cast<size_t>(size)));
    });
  }
  SharedSource on(SharedSource base) const override {
    auto copy = std::make_shared<MergedSource>(*this);
    copy->set_base(std::move(base));
    return copy;
  }

 private:
  std::vector<float> merged_rows(const families::Linear& layer,
                                 const format::TensorSlice& box, int64_t row,
                                 int64_t count) const {
    const families::LowRank& form = *layer.adapter;
    const int64_t width = box.global_shape[1];
    const std::vector<int64_t> a_shape = {form.rank, width},
                               b_shape = {layer.out, form.rank};
    std::vector<float> rows =
        floats_of(*base(), rows_of(box.name, box.global_shape, row, count));
    const auto a =
        floats_of(*base(), rows_of(families::lora_a(layer), a_shape, 0, form.rank));
    const auto b =
        floats_of(*base(), rows_of(families::lora_b(layer), b_shape, row, count));
    std::vector<float> lengths;
    if (form.magnitude) {
      lengths = floats_of(*base(), rows_of(layer.name + ".lora_magnitude_vector",
                                           {layer.out}, row, count));
    }
    for (int64_t i = 0; i < count; ++i) {
      const std::span<float> out = std::span(rows).subspan(static_cast<size_t>(i * width),
                                                           static_cast<size_t>(width));
      for (int64_t r = 0; r < form.rank; ++r) {
        const auto factor = static_cast<float>(
            form.scale * static_cast<double>(b[static_cast<size_t>(i * form.rank + r)]));
        const float* const from = a.data() + r * width;
        for (size_t k = 0; k < out.size(); ++k) out[k] += factor * from[k];
      }
      if (!form.magnitude) continue;
      const auto factor = static_cast<float>(
          static_cast<double>(lengths[static_cast<size_t>(i)]) / length_of(out));
      for (float& value : out) value *= factor;
    }
    return rows;
  }

  std::map<std::string, families::Linear> layers_;  ///< by the name of the weight
};

/// Returns the hash of one whole tensor in its stored dtype.
std::string hash_of_tensor(const WeightsSource& source,
                           const format::TensorSlice& tensor) {
  BlockHasher hasher;
  const auto size = static_cast<int64_t>(format::dtype_size(tensor.dtype));
  std::vector<std::byte> bytes;
  for (int64_t at = 0; at < tensor.num_elements(); at += kElementsOfBlock) {
    const int64_t end = std::min(tensor.num_elements(), at + kElementsOfBlock);
    bytes.resize(static_cast<size_t>((end - at) * size));
    source.read_flat_range(tensor, at, end, tensor.dtype, bytes);
    hasher.update(bytes);
  }
  return fmt::format("{} {} {} {}", tensor.name, format::dtype_name(tensor.dtype),
                     format::describe_shape(tensor.global_shape),
                     combine_hashes(hasher.finish()));
}

}  // namespace

SharedSource with_adapter(const SharedSource& base, const AdapterValues& values,
                          const ModelDescription& model) {
  return std::make_shared<AdaptedSource>(base, values, model);
}

SharedSource merged(const SharedSource& adapted, const ModelConfig& model) {
  return std::make_shared<MergedSource>(adapted, model);
}

std::string hash_of_base(const WeightsSource& base, const ModelDescription& model,
                         comm::Communicator& world) {
  std::set<std::string> names;
  for (const ParameterDescription& p : model.parameters()) {
    if (!families::is_of_adapter(p.name)) names.insert(p.name);
  }
  return hash_of_tensors(base, names, world);
}

std::string hash_of_tensors(const WeightsSource& source,
                            const std::set<std::string>& names,
                            comm::Communicator& world) {
  Json mine = Json::object();
  comm::on_all_ranks(world, [&] {
    int64_t next = 0;
    for (const format::TensorSlice& tensor : source.tensors()) {
      if (!names.contains(tensor.name) || next++ % world.size() != world.rank()) continue;
      mine[tensor.name] = hash_of_tensor(source, tensor);
    }
  });
  std::map<std::string, std::string> all;
  for (const std::string& text : world.gather_strings(json_text(mine))) {
    const Json of_rank = parse_json(text, "hashes of tensors");
    for (const auto& [name, line] : of_rank.items()) {
      all.emplace(name, line.get<std::string>());
    }
  }
  std::string lines;
  for (const auto& [name, line] : all) lines += line + "\n";
  return hash_hex(std::string_view(lines));
}

}  // namespace longhaul::checkpoint
