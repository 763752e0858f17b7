// Prints every sequence of a data source as one line of JSON: what training would see.
#include <fmt/format.h>

#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/data/sources/open_source.h"

int main(int argc, char** argv) {
  using namespace longhaul;
  try {
    if (argc != 4)
      throw InputError("data", "usage: longhaul_data_tool PATH SEQ_LEN VOCAB");
    const int64_t length = std::atoll(argv[2]);
    const auto source = data::open_source(argv[1], length);
    data::check_vocabulary(*source, std::atoll(argv[3]));
    data::TokenBatch batch;
    batch.resize(1, length);
    for (int64_t i = 0; i < source->num_sequences(); ++i) {
      source->read(i, batch, 0);
      const Json row = {{"tokens", batch.tokens}, {"targets", batch.targets}};
      fmt::print("{}\n", row.dump());
    }
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "longhaul: error: {}\n", error.what());
    return error.exit_code();
  }
}
