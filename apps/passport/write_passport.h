#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/ranks.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/objects/access.h"

namespace longhaul::apps {

/// What a person asks of a passport.
struct PassportCall {
  bool wanted = false;
  std::string key;                ///< to sign with; empty: the passport is not signed
  std::optional<int64_t> tp, pp;  ///< the layout in which the model is run
  std::vector<int64_t> mean_of;   ///< the steps of the run whose mean the weights are
};

/// Writes the passport of the Hugging Face directory `dir`, its signature if a key is
/// given, and the script that checks it. `source` is what the directory was exported
/// from. The model of the directory is loaded in fp32 and run in the layout of the call;
/// without one, each rank holds all of it, except experts. Throws ConfigError for a model
/// that does not predict the next token, and if ssh-keygen does not sign. Collective.
void write_passport(const fs::path& dir, const checkpoint::ModelSource& source,
                    const PassportCall& call, const objects::Access& objects,
                    const World& world);

}  // namespace longhaul::apps
