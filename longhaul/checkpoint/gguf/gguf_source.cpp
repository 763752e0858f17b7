#include "longhaul/checkpoint/gguf/gguf_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/gguf/gguf_config.h"
#include "longhaul/format/q8_0.h"
#include "longhaul/format/side_files.h"

namespace longhaul::checkpoint {
namespace {

using format::DType;
using format::GgufTensor;
using format::GgufType;

DType dtype_of(GgufType type) {
  if (type == GgufType::F16) return DType::F16;
  return type == GgufType::BF16 ? DType::BF16 : DType::F32;
}

std::vector<CarriedFile> tokenizer_files(const fs::path& dir) {
  std::vector<CarriedFile> files;
  if (dir.empty()) return files;
  const std::vector<std::string> names = format::hf_side_files(dir);
  for (const std::string& name : names) {
    if (format::is_tokenizer_side_file(name)) files.push_back({name, dir / name, {}});
  }
  if (!format::has_tokenizer(names)) {
    fail_input("gguf", "{}: there is no tokenizer in this directory", dir.string());
  }
  return files;
}

/// Throws InputError that lists the tensors that are missing, surplus or misshapen.
void check_parts(const GgufModel& model, const std::vector<GgufTensor>& tensors,
                 const std::string& what) {
  constexpr size_t kNames = 5;
  std::map<std::string, const GgufTensor*> there;
  for (const GgufTensor& tensor : tensors) there[tensor.name] = &tensor;
  std::vector<std::string> problems;
  for (const GgufPart& part : model.parts) {
    const auto found = there.find(part.tensor.name);
    if (found == there.end()) {
      problems.push_back(part.tensor.name + " is missing");
    } else if (found->second->shape != part.tensor.shape) {
      problems.push_back(fmt::format("{} has the shape {}, expected {}", part.tensor.name,
                                     format::describe_shape(found->second->shape),
                                     format::describe_shape(part.tensor.shape)));
    }
    if (found != there.end()) there.erase(found);
  }
  for (const auto& [name, tensor] : there) problems.push_back(name + " is unexpected");
  if (problems.empty()) return;
  fail_input("gguf", "{}: the tensors are not those of the file's keys: {}", what,
             listed(problems, kNames));
}

/// Fills `out` with `count` elements of a tensor from element `first` on.
void read_elements(const GgufTensor& tensor, std::span<const std::byte> data,
                   int64_t first, size_t count, DType dst, std::byte* out) {
  if (tensor.type == GgufType::Q8_0) {
    std::vector<float> elements(count);
    format::read_q8_0(data, first, elements);
    format::convert_elements(reinterpret_cast<const std::byte*>(elements.data()),
                             DType::F32, out, dst, count);
    return;
  }
  const DType stored = dtype_of(tensor.type);
  const size_t at = static_cast<size_t>(first) * format::dtype_size(stored);
  format::convert_elements(data.data() + at, stored, out, dst, count);
}

}  // namespace

GgufSource::GgufSource(const fs::path& file, const fs::path& config,
                       const fs::path& scratch, const fs::path& tokenizer_dir)
    : file_(file), files_(tokenizer_files(tokenizer_dir)) {
  const std::string what = file.string();
  header_ = format::parse_gguf(file_.bytes(), what);
  source_ = {ModelSource::Kind::Checkpoint, file, {}};
  config_path_ = config;
  if (config.empty()) {
    config_path_ = scratch / "config.json";
    const std::string text = config_of_gguf(header_, what);
    fs::create_directories(scratch);
    write_text_atomic(config_path_, text);
  } else if (is_seen_directory(config)) {
    config_path_ = config / "config.json";
  }
  const ModelConfig model = load_model_config(config_path_);
  const bool stores_head =
      std::ranges::count(header_.tensors, std::string_view("output.weight"),
                         &GgufTensor::name) > 0;
  model_ = describe_gguf(model, GgufType::F32, stores_head);
  check_parts(model_, header_.tensors, what);
  check_gguf_values(header_, model_.values, what);
  place_parameters(model);
}

void GgufSource::place_parameters(const ModelConfig& config) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const format::TensorSlice& tensor : config.description.tensors()) {
    shapes[tensor.name] = tensor.global_shape;
  }
  for (const GgufPart& part : model_.parts) {
    const auto tensor =
        std::ranges::find(header_.tensors, part.tensor.name, &GgufTensor::name);
    int64_t first = 0;
    for (const std::string& name : part.parameters) {
      const auto own = shapes.find(name);
      // A head that is tied in config.json and stored has the shape of its tensor.
      const std::vector<int64_t>& shape =
          own == shapes.end() ? part.tensor.shape : own->second;
      auto slice = format::TensorSlice::whole(name, shape, dtype_of(tensor->type));
      const bool fresh =
          places_.emplace(name, Place{&part, &*tensor, first, shape}).second;
      first += slice.num_elements();
      if (fresh) tensors_.push_back(std::move(slice));
    }
  }
  std::ranges::sort(tensors_, {}, &format::TensorSlice::name);
}

void GgufSource::read(const format::TensorSlice& box, DType dst,
                      std::span<std::byte> out) const {
  const auto found = places_.find(box.name);
  if (found == places_.end()) {
    fail_input("gguf", "{}: no tensor holds {}", source_.path.string(), box.name);
  }
  const Place& place = found->second;
  LH_CHECK(box.global_shape == place.shape, "gguf", "{} has shape {}, expected {}",
           box.name, format::describe_shape(place.shape),
           format::describe_shape(box.global_shape));
  const auto data = file_.bytes().subspan(header_.data_start + place.tensor->offset,
                                          place.tensor->bytes());
  const int64_t rows = place.shape[0];
  const bool matrix = place.shape.size() > 1;
  const int64_t columns = matrix ? place.shape[1] : 1;
  const int64_t first_column = matrix ? box.offset[1] : 0;
  const auto wanted = static_cast<size_t>(matrix ? box.extent[1] : 1);
  const size_t size = format::dtype_size(dst);
  const auto read_run = [&](int64_t row, size_t count, std::byte* to) {
    read_elements(*place.tensor, data, place.first + row * columns + first_column, count,
                  dst, to);
  };
  const int64_t begin = box.offset[0], end = begin + box.extent[0];
  if (place.part->heads == 0 && (!matrix || box.extent[1] == columns)) {
    read_run(begin, static_cast<size_t>(end - begin) * wanted, out.data());
  } else {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t heads = place.part->heads;
      read_run(heads > 0 ? GgufPart::row_in_file(row, rows / heads) : row, wanted,
               out.data() + static_cast<size_t>(row - begin) * wanted * size);
    }
  }
  if (!place.part->plus_one) return;
  std::vector<float> values(out.size() / size);
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  read_elements(*place.tensor, data, place.first + begin, values.size(), DType::F32,
                bytes);
  for (float& value : values) value -= 1.0F;
  format::convert_elements(bytes, DType::F32, out.data(), dst, values.size());
}

const StoredTensors& GgufSource::stored() const {
  throw Error(ErrorKind::Internal, "gguf",
              source_.path.string() + ": a GGUF file is imported, not read in place");
}

std::string GgufSource::what() const {
  std::map<GgufType, uint64_t> bytes;
  for (const GgufTensor& tensor : header_.tensors) bytes[tensor.type] += tensor.bytes();
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& one) { return one.second; });
  return fmt::format("{}, {}", model_.architecture,
                     most == bytes.end() ? "" : format::gguf_type_name(most->first));
}

}  // namespace longhaul::checkpoint
