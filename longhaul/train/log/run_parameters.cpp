#include "longhaul/train/log/run_parameters.h"

#include <algorithm>
#include <string>
#include <vector>

#include "longhaul/base/build_info.h"
#include "longhaul/config/load.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/train/log/environment.h"
#include "longhaul/train/start/staged_inputs.h"

namespace longhaul::train {

Json run_parameters(const TrainingSession& session, int64_t total_steps) {
  const RunConfig& config = session.config();
  const char* const dtype =
      session.machine().policy.compute == format::DType::F32 ? "float32" : "bfloat16";
  std::string dataset;
  for (const data::WeightedSource& source : session.data().train) {
    dataset += (dataset.empty() ? "" : ", ") + source.name;
  }
  Json environment = Json::object();
  for (const auto& [name, value] : logged_environment()) environment[name] = value;
  const int64_t horizon = config.schedule.horizon.value_or(total_steps);
  const Json settings = parse_json(to_json_text(config), "the settings");
  return {{"Model", config.model.config.string()},
          {"Model configuration",
           parse_json(to_hf_config_json(session.model(), dtype), "config.json")},
          {"Parameters", session.model().description.num_parameters()},
          {"Active parameters", session.model().description.num_active_parameters()},
          {"World size", session.world().size()},
          {"Data parallel degree", session.layout().description().batch.dp},
          {"Tensor parallel degree", config.parallel.tp},
          {"Pipeline parallel degree", config.parallel.pp},
          {"Context parallel degree", config.parallel.cp},
          {"Expert parallel degree", config.parallel.ep},
          {"ZeRO stage", config.parallel.zero},
          {"Batch size", config.batch.micro_size},
          {kAccumulationParameter, session.layout().description().batch.accumulation},
          {"Batch size per replica",
           session.layout().description().batch.sequences_per_replica},
          {"Global batch size", config.batch.global_size},
          {"Sequence length", config.data.seq_len},
          {"Total steps", total_steps},
          {"Warmup steps", static_cast<int64_t>(warmup_length(config.schedule, horizon))},
          {"Seed", config.run.seed},
          {"Optimizer", settings.at("optimizer")},
          {"Schedule", settings.at("schedule")},
          {"Data type", dtype},
          {"Dataset", dataset},
          {"Version", build_info().one_line()},
          {"Environment variables", std::move(environment)}};
}

ResultsFacts results_facts(const TrainingSession& session) {
  ResultsFacts facts{session.config(), session.data().train_sequences};
  if (session.config().log.results != ResultsForm::Bert) return facts;
  facts.shards = 0;
  for (const TrainSource& source : session.config().data.train) {
    std::vector<fs::path> files;
    if (source.synthetic == 0) files = local_paths(source.path, session.objects());
    if (!files.empty() && data::names_bert_shards(files.front())) {
      files = data::find_bert_shards(files);
    }
    facts.shards += std::max<int64_t>(1, static_cast<int64_t>(files.size()));
  }
  return facts;
}

}  // namespace longhaul::train
