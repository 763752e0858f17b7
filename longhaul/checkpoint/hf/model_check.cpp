#include "longhaul/checkpoint/hf/model_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/hf/tied_head.h"
#include "longhaul/comm/agree.h"
#include "longhaul/format/side_files.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::checkpoint {
namespace {

/// Hashes prove a checkpoint's files.
std::vector<std::string> model_problems(const SharedSource& source,
                                        const ModelDescription& model) {
  std::vector<std::string> problems = tensor_problems(source, model);
  if (source->source().kind != ModelSource::Kind::HfDirectory) return problems;
  const std::vector<std::string> beside = problems_beside(source->source().path);
  problems.insert(problems.end(), beside.begin(), beside.end());
  return problems;
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
  std::vector<std::string> problems = side_file_problems(dir);
  const std::string damage = tokenizer::damaged_tokenizer(dir);
  if (!damage.empty()) problems.push_back(damage);
  return problems;
}

void check_model_files(const SharedSource& source, const ModelDescription& model,
                       comm::Communicator& group) {
  comm::on_all_ranks(group, [&] {
    // One rank looks at what all of them see.
    const std::vector<std::string> problems = group.rank() == 0
                                                  ? model_problems(source, model)
                                                  : tensor_problems(source, model);
    if (problems.empty()) return;
    throw InputError("weights",
                     fmt::format("{}; copy what is damaged from where the model came "
                                 "from (`longhaul inspect` lists it)",
                                 fmt::join(problems, "; ")));
  });
}

void check_model(const SharedSource& source, const ModelConfig& config,
                 comm::Communicator& group) {
  check_model_files(source, config.description, group);
  comm::on_rank_zero(group, [&] {
    check_tied_head(*source, config);
    return std::string();
  });
}

}  // namespace longhaul::checkpoint
