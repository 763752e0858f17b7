#include "longhaul/checkpoint/gguf/gguf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/gguf/gguf_model.h"
#include "longhaul/checkpoint/gguf/gguf_tokenizer.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/checkpoint/read/finite_values.h"
#include "longhaul/comm/agree.h"
#include "longhaul/families/model_config.h"
#include "longhaul/format/q8_0.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::checkpoint {
namespace {

using format::DType;
using format::GgufType;

// A tensor is read and written in parts of about this many elements.
constexpr int64_t kElementsAtOnce = int64_t{4} << 20;

/// Returns the dtype in which elements are read that are then stored as `type`.
DType dtype_before(GgufType type) {
  if (type == GgufType::F16) return DType::F16;
  return type == GgufType::BF16 ? DType::BF16 : DType::F32;
}

/// Returns the type that is nearest to the dtype of most of the source's elements.
GgufType type_of_most(const WeightsSource& source) {
  std::map<DType, int64_t> counts;
  for (const format::TensorSlice& tensor : source.tensors()) {
    counts[tensor.dtype] += tensor.num_elements();
  }
  const auto most = std::ranges::max_element(
      counts, {}, [](const auto& counted) { return counted.second; });
  if (most == counts.end()) return GgufType::F32;
  if (most->first == DType::F16) return GgufType::F16;
  return most->first == DType::BF16 ? GgufType::BF16 : GgufType::F32;
}

/// Returns llama.cpp's number of a file whose matrices have this type.
uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::F32:
      return 0;
    case GgufType::F16:
      return 1;
    case GgufType::Q8_0:
      return 7;
    case GgufType::BF16:
      return 32;
  }
  return 0;
}

/// Adds the settings of generation_config.json that llama.cpp takes for its own.
void add_sampling(const fs::path& dir, format::GgufValues& values) {
  static constexpr std::pair<const char*, const char*> kNumbers[] = {
      {"top_p", "top_p"},
      {"min_p", "min_p"},
      {"temperature", "temp"},
      {"repetition_penalty", "penalty_repeat"}};
  const fs::path file = dir / "generation_config.json";
  if (!fs::exists(file)) return;
  const Json json = read_json(file);
  if (!json.is_object()) return;
  const auto top_k = json.find("top_k");
  if (top_k != json.end() && top_k->is_number_integer()) {
    values.emplace_back("general.sampling.top_k", top_k->get<int32_t>());
  }
  for (const auto& [theirs, key] : kNumbers) {
    const auto value = json.find(theirs);
    if (value == json.end() || !value->is_number()) continue;
    values.emplace_back(fmt::format("general.sampling.{}", key), value->get<float>());
  }
}

/// Puts the rows of heads into the order of the file (GgufPart::heads).
void turn_rows(std::vector<std::byte>& rows, size_t row_bytes, int64_t head_rows) {
  const std::vector<std::byte> before = rows;
  const auto count = static_cast<int64_t>(rows.size() / row_bytes);
  for (int64_t row = 0; row < count; ++row) {
    const auto from = static_cast<size_t>(GgufPart::row_of_parameter(row, head_rows));
    std::memcpy(rows.data() + static_cast<size_t>(row) * row_bytes,
                before.data() + from * row_bytes, row_bytes);
  }
}

class PartWriter {
 public:
  PartWriter(const WeightsSource& source, format::GgufWriter& writer,
             std::function<void(uint64_t)> done)
      : source_(source), writer_(writer), done_(std::move(done)) {
    for (const format::TensorSlice& tensor : source.tensors()) {
      tensors_.emplace(tensor.name, tensor);
    }
  }

  void write(const GgufPart& part) {
    if (part.parameters.empty()) return append(std::as_bytes(std::span(part.values)));
    for (const std::string& name : part.parameters) {
      write_parameter(part, tensors_.at(name));
    }
  }

 private:
  void write_parameter(const GgufPart& part, const format::TensorSlice& parameter) {
    const int64_t rows = parameter.global_shape[0];
    const int64_t columns = parameter.num_elements() / rows;
    // Whole heads are read at once, and whole blocks, which lie within a row.
    const int64_t unit = part.heads > 0 ? rows / part.heads : 1;
    const int64_t at_once =
        std::max<int64_t>(1, kElementsAtOnce / (unit * columns)) * unit;
    const GgufType type = part.tensor.type;
    const DType dtype = dtype_before(type);
    const size_t size = format::dtype_size(dtype);
    for (int64_t at = 0; at < rows; at += at_once) {
      stop_if_signalled();
      const int64_t end = std::min(rows, at + at_once);
      buffer_.resize(static_cast<size_t>((end - at) * columns) * size);
      source_.read_flat_range(parameter, at * columns, end * columns, dtype, buffer_);
      check_finite(source_, parameter, at * columns, dtype, buffer_);
      if (part.heads > 0) turn_rows(buffer_, static_cast<size_t>(columns) * size, unit);
      if (part.plus_one) add_one();
      if (type == GgufType::Q8_0) {
        blocks_.resize(format::gguf_bytes(type, (end - at) * columns));
        quantize(parameter);
        append(blocks_);
      } else {
        append(buffer_);
      }
    }
  }

  void quantize(const format::TensorSlice& parameter) {
    try {
      format::quantize_q8_0(floats(), blocks_);
    } catch (const InputError& problem) {
      fail_input("gguf", "{}: {}: {}", source_.source().path.string(), parameter.name,
                 problem.message());
    }
  }
  std::span<float> floats() {
    return {reinterpret_cast<float*>(buffer_.data()), buffer_.size() / sizeof(float)};
  }
  void add_one() {
    for (float& element : floats()) element += 1.0F;
  }
  void append(std::span<const std::byte> bytes) {
    writer_.append(bytes);
    done_(bytes.size());
  }

  const WeightsSource& source_;
  format::GgufWriter& writer_;
  std::function<void(uint64_t)> done_;
  std::map<std::string, format::TensorSlice> tensors_;
  std::vector<std::byte> buffer_;
  std::vector<std::byte> blocks_;
};

/// Adds the tokenizer, or says that there is none, and tells the person which.
void add_tokenizer(const fs::path& dir, const ModelConfig& config, const GgufModel& model,
                   bool wanted, format::GgufValues& values, GgufReport& report) {
  const bool there = tokenizer::find_tokenizer_file(dir).has_value();
  if (wanted && there) {
    GgufTokenizer described = describe_gguf_tokenizer(dir, config.vocab_size);
    const auto text = [&](const char* key) {
      return std::get<std::string>(*format::find_value(described.values, key));
    };
    report.what += fmt::format(", tokenizer {} ({})", text("tokenizer.ggml.model"),
                               text("tokenizer.ggml.pre"));
    std::ranges::move(described.values, std::back_inserter(values));
    std::ranges::move(described.notes, std::back_inserter(report.notes));
    return;
  }
  report.what += ", no tokenizer";
  if (wanted) {
    report.notes.push_back(
        fmt::format("{} has no tokenizer, and so the file has none: llama.cpp takes ids "
                    "alone from it",
                    dir.string()));
  }
  // llama.cpp makes so many tokens without a text.
  const std::string key = model.architecture + ".vocab_size";
  if (format::find_value(values, key) == nullptr) {
    values.emplace_back(key, static_cast<uint32_t>(config.vocab_size));
  }
  std::ranges::move(no_gguf_tokenizer(), std::back_inserter(values));
}

GgufReport write_gguf(const WeightsSource& source, const ModelConfig& config,
                      const fs::path& out, const GgufOptions& options) {
  const GgufType type = options.type.value_or(type_of_most(source));
  const auto& tied = config.description.tied;
  const bool stores_head = tied && std::ranges::count(source.tensors(), tied->head,
                                                      &format::TensorSlice::name) > 0;
  const GgufModel model = describe_gguf(config, type, stores_head);
  GgufReport report;
  report.what = fmt::format("{}, {}", model.architecture, gguf_type_name(type));
  const fs::path dir = source.config_path().parent_path();
  format::GgufValues values = {{"general.architecture", model.architecture},
                               {"general.type", std::string("model")}};
  add_sampling(dir, values);
  // The name of a checkpoint's directory is only the number of its step.
  const bool of_run = source.source().kind == ModelSource::Kind::Checkpoint;
  const fs::path from = fs::absolute(source.source().path / "").lexically_normal();
  values.emplace_back("general.name",
                      (of_run ? out.stem() : from.parent_path().filename()).string());
  values.emplace_back("general.size_label", gguf_size_label(model));
  std::ranges::copy(model.values, std::back_inserter(values));
  values.emplace_back("general.file_type", file_type(type));
  values.emplace_back("general.quantization_version", uint32_t{2});
  add_tokenizer(dir, config, model, options.tokenizer, values, report);

  std::vector<format::GgufTensor> tensors;
  std::vector<std::string> uneven;
  uint64_t total = 0;
  for (const GgufPart& part : model.parts) {
    tensors.push_back(part.tensor);
    total += part.tensor.bytes();
    if (part.tensor.type != type && part.tensor.type == GgufType::F16) {
      uneven.push_back(part.tensor.name);
    }
  }
  if (!uneven.empty()) {
    report.notes.push_back(
        fmt::format("{} became F16, since rows are no whole blocks of Q8_0: {}",
                    counted(std::ssize(uneven), "tensor"), listed(uneven, 3)));
  }
  format::GgufWriter writer(out, values, std::move(tensors));
  uint64_t done = 0;
  PartWriter parts(source, writer, [&](uint64_t bytes) {
    done += bytes;
    if (options.progress) options.progress(done, total);
  });
  for (const GgufPart& part : model.parts) parts.write(part);
  writer.finish();
  report.tensors = model.parts.size();
  report.bytes = writer.file_size();
  return report;
}

}  // namespace

GgufReport export_gguf(const SharedSource& source, const fs::path& out,
                       const GgufOptions& options, comm::Communicator& world) {
  GgufReport report;
  const auto write = [&] {
    if (world.rank() != 0) return;
    if (holds_adapter(*source)) {
      fail_input("gguf", "{} holds an adapter, and no model; --merge adds it to its base",
                 source->source().path.string());
    }
    const ModelConfig config = load_model_config(source->config_path());
    check_weights(source, config.description);
    report = write_gguf(*as_parameters(source, config.description), config, out, options);
  };
  comm::do_and_meet(world, write, {});  // a signal ends the work by itself
  return report;
}

}  // namespace longhaul::checkpoint
