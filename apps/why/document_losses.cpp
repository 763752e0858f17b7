#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/named_model.h"
#include "apps/verbs.h"
#include "apps/why/replayed_step.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/session/inference.h"

namespace longhaul::apps {
namespace {

struct Call {
  std::string request;
  std::string answer;
};

/// Returns a row of a request as a batch. Its parts are the sides of pairs, so that the
/// loss of pairs (nn::loss_head) adds up their log-probabilities.
data::TokenBatch batch_of(const Json& row, int64_t seq_len) {
  data::TokenBatch batch;
  batch.resize(1, seq_len);
  row.at("tokens").get_to(batch.tokens);
  row.at("targets").get_to(batch.targets[0]);
  row.at("positions").get_to(batch.positions);
  row.at("document_start").get_to(batch.document_start);
  row.at("part_of").get_to(batch.sides);
  batch.pairs.emplace_back((row.at("parts").get<size_t>() + 1) / 2);
  return batch;
}

void compute(const Call& call, const objects::Access& objects, const World& world,
             const fs::path& path, const Json& request) {
  ModelCall how;
  how.model = path.string();
  request.at("dtype").get_to(how.dtype);
  request.at("device").get_to(how.device);
  how.plain = !request.at("fused").get<bool>();
  const auto seq_len = request.at("seq_len").get<int64_t>();
  const NamedModel model = open_model(path, objects, *world);
  const session::Session session =
      load_model(model, how, asked_parallel(how, model, *world), seq_len, 1, world);
  nn::Tensors found;
  session::StageOptions options = session::stage_options(session);
  options.context.pairs.sums = &found;
  options.context.pairs.counts = false;  // the terms of the loss are not those of pairs
  options.context.pairs.settings.loss = PreferenceLoss::Sigmoid;
  session::StageRunner runner(session.chunks(), session.replicas(), options);
  std::vector<double> losses;
  for (const Json& row : request.at("rows")) {
    std::vector<data::TokenBatch> batches = {batch_of(row, seq_len)};
    found.clear();
    (void)session::loss_sums(session, runner, batches);
    const at::Tensor host = found.at(0).cpu().contiguous();
    const double* const sums = host.const_data_ptr<double>();
    for (size_t i = 0; i < row.at("parts").get<size_t>(); ++i) losses.push_back(-sums[i]);
  }
  write_text_durable(call.answer, json_text(Json(losses)));
}

}  // namespace

void add_document_losses(CLI::App& program, Outcome& outcome) {
  const auto call = std::make_shared<Call>();
  CLI::App* verb = program.add_subcommand(
      kDocumentLossesVerb, "Computes the losses of a step's documents, for `why --loss`");
  verb->group("");  // `longhaul why` calls it
  verb->add_option("request", call->request)->required();
  verb->add_option("answer", call->answer)->required();
  verb->callback([call, &outcome] {
    const Json request = read_json(call->request, uint64_t{1} << 36);
    outcome.exit_code =
        with_model(request.at("model").get<std::string>(), outcome.objects,
                   [&](const fs::path& path, const World& world) {
                     compute(*call, outcome.objects, world, path, request);
                   });
  });
}

}  // namespace longhaul::apps
