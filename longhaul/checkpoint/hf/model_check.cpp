#include "longhaul/checkpoint/hf/model_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/checkpoint/read/finite_values.h"
#include "longhaul/comm/agree.h"
#include "longhaul/format/side_files.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::checkpoint {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 21;

std::optional<format::TensorSlice> find(const WeightsSource& source,
                                        const std::string& name) {
  for (const format::TensorSlice& tensor : source.tensors()) {
    if (tensor.name == name) return tensor;
  }
  return std::nullopt;
}

std::vector<float> rows(const WeightsSource& source, format::TensorSlice box,
                        int64_t first, int64_t count) {
  box.offset[0] = first;
  box.extent[0] = count;
  std::vector<float> values(static_cast<size_t>(box.num_elements()));
  source.read(box, format::DType::F32, std::as_writable_bytes(std::span(values)));
  // A NaN is refused here, since a NaN in both tensors would look like a difference.
  check_finite(source, box, 0, format::DType::F32, std::as_bytes(std::span(values)));
  return values;
}

/// Returns the problems of a model's files; a checkpoint's files are already proven by
/// hashes.
std::vector<std::string> model_problems(const SharedSource& source,
                                        const ModelDescription& model) {
  std::vector<std::string> problems = tensor_problems(source, model);
  if (source->source().kind != ModelSource::Kind::HfDirectory) return problems;
  const std::vector<std::string> beside = problems_beside(source->source().path);
  problems.insert(problems.end(), beside.begin(), beside.end());
  return problems;
}

/// Throws InputError where the weights do not fit since they are of another family.
void check_family(const SharedSource& source, const ModelConfig& config) {
  const ModelSource& from = source->source();
  const fs::path file = from.path / "config.json";
  if (from.kind != ModelSource::Kind::HfDirectory || !fs::exists(file)) return;
  if (tensor_problems(source, config.description).empty()) return;
  const Json json = parse_json(read_text(file, uint64_t{1} << 24), file.string());
  const auto type = json.is_object() ? json.find("model_type") : json.end();
  if (type == json.end() || !type->is_string() || *type == config.model_type) return;
  fail_input(
      "weights",
      "the weights in {} are of a model of type {}, and {} describes one of type {}; "
      "name the configuration of the same model",
      from.path.string(), type->get<std::string>().substr(0, 80),
      config.source_path.string(), config.model_type);
}

}  // namespace

std::vector<std::string> tensor_problems(const SharedSource& source,
                                         const ModelDescription& model) {
  try {
    check_weights(source, model);
  } catch (const InputError& error) {
    return {error.message()};
  }
  return {};
}

std::vector<std::string> problems_beside(const fs::path& dir) {
  std::vector<std::string> problems = format::side_file_problems(dir);
  const std::string damage = tokenizer::damaged_tokenizer(dir);
  if (!damage.empty()) problems.push_back(damage);
  return problems;
}

std::optional<std::string> tied_head_difference(const WeightsSource& source,
                                                const ModelConfig& config) {
  const auto& tied = config.description.tied;
  if (!tied) return std::nullopt;
  const auto head = find(source, tied->head);
  const auto embedding = find(source, tied->embedding);
  if (!head || !embedding) return std::nullopt;
  if (head->global_shape != embedding->global_shape || head->global_shape.size() != 2) {
    return fmt::format("{} has shape {}, but {} has shape {}", tied->head,
                       format::describe_shape(head->global_shape), tied->embedding,
                       format::describe_shape(embedding->global_shape));
  }
  const int64_t height = head->global_shape[0];
  const int64_t width = std::max<int64_t>(1, head->global_shape[1]);
  const int64_t step = std::max<int64_t>(1, kElementsAtOnce / width);
  for (int64_t first = 0; first < height; first += step) {
    const int64_t count = std::min(step, height - first);
    const std::vector<float> ours = rows(source, *head, first, count);
    const std::vector<float> theirs = rows(source, *embedding, first, count);
    const auto [one, other] = std::ranges::mismatch(ours, theirs);
    if (one == ours.end()) continue;
    const int64_t at = one - ours.begin();
    return fmt::format("{}[{}, {}] is {}, but the same element of {} is {}", tied->head,
                       first + at / width, at % width, *one, tied->embedding, *other);
  }
  return std::nullopt;
}

void check_tied_head(const WeightsSource& source, const ModelConfig& config) {
  const auto difference = tied_head_difference(source, config);
  if (!difference) return;
  fail_input("weights",
             "{}: tie_word_embeddings is true in {}, but the files hold an output "
             "projection of its own: {}. transformers does not tie such a model; set "
             "tie_word_embeddings = false, or remove {} from the files",
             source.source().path.string(), config.source_path.string(), *difference,
             config.description.tied->head);
}

void check_model_files(const SharedSource& source, const ModelDescription& model,
                       comm::Communicator& group) {
  comm::on_all_ranks(group, [&] {
    if (holds_adapter(*source)) {
      fail_input("weights",
                 "{}: holds an adapter without its base; make a whole model of it first: "
                 "longhaul export RUN --merge --out DIR",
                 source->source().path.string());
    }
    // All ranks see the same files, so only rank 0 checks the files beside the weights.
    const std::vector<std::string> problems = group.rank() == 0
                                                  ? model_problems(source, model)
                                                  : tensor_problems(source, model);
    if (problems.empty()) return;
    fail_input("weights",
               "{}; copy the damaged files again from the model's origin (`longhaul "
               "inspect` lists them)",
               fmt::join(problems, "; "));
  });
}

void check_model(const SharedSource& source, const ModelConfig& config,
                 comm::Communicator& group) {
  try {
    check_model_files(source, config.description, group);
  } catch (const InputError&) {  // on all ranks
    comm::on_rank_zero(group, [&] { check_family(source, config); });
    throw;
  }
  comm::on_rank_zero(group, [&] { check_tied_head(*source, config); });
}

}  // namespace longhaul::checkpoint
