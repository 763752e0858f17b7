#include "apps/objects/output_use.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/program.h"
#include "longhaul/data/bert/bert_record.h"
#include "longhaul/run/files.h"

namespace longhaul::apps {

objects::OutputUse output_use(objects::OutputUse use) {
  use.last = {"model.safetensors.index.json",
              "config.json",
              "state.json",
              "dataset_info.json",
              data::kBertRecordName,
              "store.json",
              std::string(run::kManifestFile)};
  use.tell = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  use.warn = say_warning;
  return use;
}

}  // namespace longhaul::apps
