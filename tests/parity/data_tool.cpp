// Prints every sequence of a data source as one line of JSON: what training would see.
// With a batch size it prints the batches of one unshuffled epoch, as the loader makes
// them. The last word is the column of the ids.
#include <fmt/format.h>

#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/order/loader.h"

namespace {

using namespace longhaul;

void print(const data::TokenBatch& batch) {
  Json json = {{"tokens", batch.tokens}, {"targets", batch.targets[0]}};
  if (!batch.real.empty()) json["real"] = batch.real;
  fmt::print("{}\n", json.dump());
}

void print_batches(std::shared_ptr<const data::TokenSource> source, int64_t size) {
  data::LoaderOptions options;
  options.shuffle = false;
  options.global_size = size;
  options.micro_size = size;
  const int64_t steps = source->num_sequences() / size;
  data::Loader loader({{std::move(source), 1.0, "source", {}}}, options);
  for (int64_t step = 0; step < steps; ++step) print(loader.next().micro_batches[0]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 4 || argc > 6) {
      throw InputError("data",
                       "usage: longhaul_data_tool PATH SEQ_LEN VOCAB [BATCH [FIELD]]");
    }
    const std::string field = argc == 6 ? argv[5] : data::kIdsField;
    const int64_t length = std::atoll(argv[2]);
    std::vector<std::unique_ptr<data::TokenSource>> parts;
    for (const fs::path& path : data::expand_paths({argv[1]})) {
      parts.push_back(data::open_source(path, length, false, true, field));
    }
    auto source = data::concatenated_source(std::move(parts));
    source->limit_ids(std::atoll(argv[3]));
    if (argc >= 5) {
      print_batches(std::move(source), std::atoll(argv[4]));
      return 0;
    }
    data::TokenBatch batch;
    source->shape(batch, 1);
    for (int64_t i = 0; i < source->num_sequences(); ++i) {
      source->read(i, batch, 0);
      print(batch);
    }
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "longhaul: error: {}\n", error.what());
    return error.exit_code();
  }
}
