#include "longhaul/train/start/open_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/self_test.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/train/start/packed_data.h"
#include "longhaul/train/start/staged_inputs.h"

namespace longhaul::train {
namespace {

using Source = std::unique_ptr<data::TokenSource>;

/// The paths that an entry of data.train or data.validation names.
struct Named {
  std::vector<fs::path> paths;
  std::string field;  ///< field in which rows hold their ids
  const char* key;
};

/// Returns the paths of an entry, or the store that they were packed into. Collective.
Named readable(const DataInputs& inputs, Named named) {
  const std::vector<fs::path>& paths = named.paths;
  const auto packs = [&](const fs::path& path) {
    return needs_packing(path, named.field, inputs.objects.pieces_at(path) != nullptr);
  };
  const auto packed = std::ranges::count_if(paths, packs);
  if (packed == 0) return named;
  if (packed != std::ssize(paths)) {
    const auto in_place = std::ranges::find_if_not(paths, packs);
    fail_config("data",
                "{} lists {} together with files that have to be packed; "
                "give each kind an entry of its own",
                named.key, in_place->string());
  }
  const bool shards = data::names_bert_shards(paths.front());
  if (shards && inputs.config.data.pack == PackKind::Whole) {
    fail_config("data",
                "{}: examples of BERT are rows already; set data.pack = \"stream\"",
                paths.front().string());
  }
  if (shards) {  // checked before the files are packed
    data::check_losses(data::example_losses(), paths.front().string(),
                       inputs.model.description.losses_with_targets(),
                       inputs.model.model_type);
  }
  const PackOptions options{named.field,
                            data_cache_dir(inputs.config),
                            inputs.model.vocab_size,
                            inputs.config.data.seq_len,
                            inputs.shards,
                            inputs.objects.store()};
  // A store has no fields, since only the packed field went into the store.
  return {{pack_sources(paths, options, inputs.world, inputs.log)},
          data::kIdsField,
          named.key};
}

data::WholeRows whole_rows(const RunConfig& config) {
  return {config.data.seq_len, config.data.too_long == TooLong::Cut,
          data_cache_dir(config)};
}

/// Lets rank 0 make the plans of rows that the cache lacks, which the other ranks then
/// find there. A machine that does not see rank 0's cache makes them itself. Collective.
void plan_rows(const DataInputs& inputs, const Named& named) {
  if (inputs.config.data.pack != PackKind::Whole) return;
  const auto plan = [&] {
    if (inputs.world.rank() > 0) return;
    for (const fs::path& path : named.paths) {
      data::open_whole_rows(path, whole_rows(inputs.config), inputs.config.data.verify,
                            named.field);
    }
  };
  comm::do_and_meet(inputs.world, plan, {});
}

Source open_path(const DataInputs& inputs, const fs::path& path,
                 const std::string& field) {
  const DataSection& data = inputs.config.data;
  Source source =
      data.pack == PackKind::Whole
          ? data::open_whole_rows(path, whole_rows(inputs.config), data.verify, field)
          : data::open_source(path, data.seq_len, data.document_mask, data.verify, field,
                              inputs.objects.pieces_at(path));
  if (inputs.tokenizer != nullptr) {
    data::check_tokenizer(*source, inputs.tokenizer->fingerprint());
    data::check_self_test(path, *inputs.tokenizer, "the model's tokenizer");
    if (inputs.world.rank() == 0) {
      const std::string warning = data::compare_templates(
          path, *inputs.tokenizer, inputs.objects.pieces_at(path).get());
      if (!warning.empty()) inputs.log.warning(warning);
    }
  }
  return source;
}

/// Opens an entry's paths as one source; packs first what has to be packed. Collective.
Source open_paths(const DataInputs& inputs, const DataPaths& entry,
                  const std::string& field, const char* key) {
  const Named named = readable(inputs, {local_paths(entry, inputs.objects), field, key});
  plan_rows(inputs, named);
  std::vector<Source> parts;
  for (const fs::path& path : named.paths) {
    parts.push_back(open_path(inputs, path, named.field));
  }
  return data::concatenated_source(std::move(parts));
}

Source open_entry(const DataInputs& inputs, const TrainSource& entry) {
  const DataSection& data = inputs.config.data;
  if (entry.synthetic > 0) {
    const ModelConfig& model = inputs.model;
    const bool masked = model.description.losses.front().name == kMaskedToken;
    const auto make = masked ? data::synthetic_examples : data::synthetic_source;
    return make(entry.synthetic, data.seq_len, model.vocab_size,
                static_cast<uint64_t>(inputs.config.run.seed));
  }
  return open_paths(inputs, entry.path, entry.field, "data.train");
}

/// Returns the name by which logs, counts and messages call a source. No two sources have
/// the same name.
std::string name_of(const TrainSource& entry,
                    const std::vector<data::WeightedSource>& before) {
  const std::string plain = entry.synthetic > 0 ? "synthetic" : entry.path.text();
  std::string name = plain;
  const auto taken = [&] {
    return std::ranges::any_of(before, [&](const auto& s) { return s.name == name; });
  };
  for (int number = 2; taken(); ++number) name = fmt::format("{}#{}", plain, number);
  return name;
}

/// Says how much of a set a validation reads.
std::string share_that_is_read(const RunConfig& config, int64_t sequences) {
  const int64_t most = config.validation.batches * config.batch.global_size;
  if (most == 0 || most >= sequences) {
    return fmt::format("all {} sequences are read", grouped(sequences));
  }
  return fmt::format(
      "the first {} of {} sequences are read ({:.1f}%): validation.batches = {} of "
      "batch.global_size = {}; validation.batches = 0 reads all",
      grouped(most), grouped(sequences),
      100.0 * static_cast<double>(most) / static_cast<double>(sequences),
      config.validation.batches, config.batch.global_size);
}

}  // namespace

RunData open_data(const DataInputs& inputs) {
  const RunConfig& config = inputs.config;
  RunData data;
  const auto checked = [&](Source source, int64_t read) {
    source->limit_ids(inputs.model.vocab_size);
    data::fit_losses(*source, inputs.model.description.losses_with_targets(),
                     inputs.model.model_type);
    std::shared_ptr<const data::TokenSource> shared = std::move(source);
    if (!config.preference.has_reference()) return shared;
    const auto referenced = std::make_shared<data::ReferencedSource>(shared);
    data.referenced.push_back({referenced, read});
    return std::shared_ptr<const data::TokenSource>(referenced);
  };
  for (const TrainSource& entry : config.data.train) {
    const auto source = checked(open_entry(inputs, entry), 0);
    data.train.push_back(
        {source, entry.weight, name_of(entry, data.train), entry.max_epochs});
    data.train_sequences += source->num_sequences();
    inputs.log.info("train data: {}", source->describe());
  }
  const int64_t most = config.validation.batches * config.batch.global_size;
  for (const ValidationSource& entry : config.data.validation) {
    const auto source =
        checked(open_paths(inputs, entry.path, entry.field, "data.validation"), most);
    infer::require_targets(*source, most, "data.validation " + entry.name);
    data.validation.push_back({entry.name, source});
    inputs.log.info("validation data {}: {}", entry.name, source->describe());
    inputs.log.info("validation data {}: {}", entry.name,
                    share_that_is_read(config, source->num_sequences()));
  }
  for (const TaskSource& entry : config.validation.tasks) {
    data.tasks.push_back(
        infer::open_task(inputs.world, entry.name, inputs.objects.readable(entry.path),
                         {inputs.tokenizer, config.data.seq_len, inputs.model.vocab_size,
                          inputs.model.description.is_causal()}));
    inputs.log.info("task {}: {}", entry.name, data.tasks.back().words);
  }
  return data;
}

}  // namespace longhaul::train
