// Drives what BERT examples are read and made with, without LibTorch:
//   batches OPTIONS-AS-JSON SHARD...   prints batches as lines of JSON
//   shuffle COUNT EPOCH                prints the order of files of an epoch
//   data build ...                     the program's own verb
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/bert/bert_loader.h"
#include "longhaul/data/bert/shard_order.h"

namespace {

using namespace longhaul;

void print_batches(const Json& wanted, const std::vector<fs::path>& arguments) {
  const auto reader = std::make_shared<data::ShardReader>();
  data::BertLoaderOptions options;
  options.batch_size = wanted.value("batch_size", int64_t{1});
  options.group = wanted.value("group", int64_t{0});
  options.num_groups = wanted.value("num_groups", int64_t{1});
  options.vocab_size = wanted.at("vocab_size").get<int64_t>();
  options.seq_len = wanted.at("seq_len").get<int64_t>();
  options.max_predictions = wanted.value("max_predictions", int64_t{0});
  options.seed = wanted.value("seed", uint64_t{0});
  options.shuffle_rows = wanted.value("shuffle_rows", true);
  options.source_epochs = wanted.value("source_epochs", false);
  options.prefetch = wanted.value("prefetch", true);
  const auto start = data::BertPosition::from_json(
      wanted.value("position", data::BertPosition().to_json()));
  data::BertLoader loader(reader, data::find_bert_shards(arguments), options, start);
  for (int64_t i = wanted.value("batches", int64_t{1}); i > 0; --i) {
    const data::BertBatch& batch = loader.next();
    const Json line = {{"file", loader.file().filename().string()},
                       {"position", loader.position().to_json()},
                       {"left_out", loader.rows_left_out()},
                       {"tokens", batch.tokens},
                       {"segments", batch.segments},
                       {"mask", batch.mask},
                       {"labels", batch.labels},
                       {"next_sentence", batch.next_sentence},
                       {"targets", batch.num_targets},
                       {"hash", batch.content_hash}};
    fmt::print("{}\n", line.dump());
  }
}

int run(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "shuffle" && argc == 4) {
    const Json order = data::python_shuffled(std::atoll(argv[2]),
                                             static_cast<uint64_t>(std::atoll(argv[3])));
    fmt::print("{}\n", order.dump());
    return 0;
  }
  if (verb == "batches" && argc > 3) {
    print_batches(parse_json(argv[2], "options"), {argv + 3, argv + argc});
    return 0;
  }
  CLI::App program("longhaul");
  apps::Outcome outcome;
  apps::add_data_build_bert(*program.add_subcommand("data", ""), outcome);
  apps::expand_build_bert(argc, argv);
  CLI11_PARSE(program, argc, argv);
  return outcome.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const longhaul::Error& error) {
    fmt::print(stderr, "longhaul: error: {}\n", error.what());
    return error.exit_code();
  }
}
