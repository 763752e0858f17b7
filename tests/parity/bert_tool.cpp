// Drives what BERT examples are read and made with, without LibTorch:
//   batches OPTIONS-AS-JSON SHARD...   packs shards and prints batches as lines of JSON
//   data build ...                     the program's own verb
#include <fmt/format.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>

#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/bert/pack_examples.h"
#include "longhaul/data/order/loader.h"

namespace {

using namespace longhaul;

/// A temporary directory, which the destructor removes.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "longhaul_bert_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void print_batches(const Json& wanted, const std::vector<fs::path>& arguments) {
  data::ShardReader reader;
  const Scratch scratch;
  data::PackExamplesOptions pack;
  pack.shards = data::find_bert_shards(arguments);
  pack.out = scratch.path() / "packed";
  pack.vocab_size = wanted.at("vocab_size").get<int64_t>();
  pack.seq_len = wanted.at("seq_len").get<int64_t>();
  data::pack_examples(reader, pack);
  const std::shared_ptr<const data::TokenSource> source =
      data::example_source(pack.out, pack.seq_len);
  data::LoaderOptions options;
  options.shuffle = wanted.value("shuffle", false);
  options.global_size = wanted.value("batch_size", int64_t{1});
  options.micro_size = options.global_size;
  data::Loader loader({{source, 1.0, "examples", {}}}, options);
  for (int64_t i = wanted.value("batches", int64_t{1}); i > 0; --i) {
    const data::StepBatch& step = loader.next();
    const data::TokenBatch& batch = step.micro_batches.at(0);
    const Json line = {{"tokens", batch.tokens},
                       {"segments", batch.segments},
                       {"document_start", batch.document_start},
                       {"document_end", batch.document_end},
                       {"positions", batch.positions},
                       {"targets", batch.targets},
                       {"num_targets", step.num_targets},
                       {"losses", source->losses()},
                       {"rows", source->num_sequences()},
                       {"hash", step.content_hash}};
    fmt::print("{}\n", line.dump());
  }
}

int run(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
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
