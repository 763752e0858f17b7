#include "apps/passport/write_passport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/named_model.h"
#include "apps/passport/logit_facts.h"
#include "apps/passport/passport_files.h"
#include "apps/passport/run_facts.h"
#include "apps/passport/text_facts.h"
#include "apps/program.h"
#include "longhaul/base/build_info.h"
#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/comm/agree.h"
#include "longhaul/tensor/cpu_memory.h"
#include "longhaul_checker.h"

namespace longhaul::apps {
namespace {

constexpr int64_t kRowsAtOnce = 8;

/// Returns what `make` returns. If a file is missing or of a kind that this program does
/// not read, returns null, and rank 0 tells the user.
template <typename Make>
auto made_or_noted(const char* what, const fs::path& dir, bool speaks, const Make& make)
    -> decltype(make()) {
  try {
    return make();
  } catch (const InputError& problem) {
    if (speaks) {
      fmt::print("note: the passport says nothing of the {}: {}\n", what,
                 without_directory(problem.message(), dir));
    }
    return nullptr;
  }
}

/// Returns how texts become tokens in the directory; null for what the directory lacks.
OrderedJson text_behaviour(const fs::path& dir, const tokenizer::Tokenizer* tokenizer) {
  OrderedJson facts = {{"tokenizer", nullptr}, {"templates", nullptr}};
  if (tokenizer == nullptr) return facts;
  facts["tokenizer"] = tokenizer_facts(*tokenizer);
  for (const OrderedJson& warning : facts["tokenizer"]["transformers_differs"]) {
    say_warning(warning.get<std::string>());
  }
  facts["templates"] = made_or_noted("chat templates", dir, /*speaks=*/true,
                                     [&] { return template_facts(*tokenizer); });
  return facts;
}

Json logit_behaviour(const NamedModel& model, const PassportCall& call,
                     const tokenizer::Tokenizer* tokenizer, const World& world) {
  ModelCall how;
  how.dtype = "fp32";
  how.tp = call.tp;
  how.pp = call.pp;
  const int64_t positions =
      std::min<int64_t>(model.config.network.max_positions, kLongestPrompt);
  const session::Session session = load_model(
      model, how, asked_parallel(how, model, *world), positions, kRowsAtOnce, world);
  return {{"dtype", "fp32"}, {"prompts", logit_facts(session, tokenizer)}};
}

}  // namespace

void write_passport(const fs::path& dir, const checkpoint::ModelSource& source,
                    const PassportCall& call, const objects::Access& objects,
                    const World& world) {
  tensor::tune_cpu_memory();
  const NamedModel model = open_model(dir, objects, *world);
  if (!model.config.description.is_causal()) {
    fail_config("export",
                "--passport needs a model that predicts the next token, and a model of "
                "type \"{}\" does not; leave --passport out",
                model.config.model_type);
  }
  // All ranks make the same prompts, so each has the tokenizer.
  const auto tokenizer = made_or_noted("tokenizer", dir, world->rank() == 0,
                                       [&] { return tokenizer::Tokenizer::load(dir); });
  const Json logits = logit_behaviour(model, call, tokenizer.get(), world);
  comm::on_rank_zero(*world, [&] {
    write_text_durable(dir / kCheckerFile, kCheckerText);
    Json facts = run_facts(source);
    if (!call.mean_of.empty()) facts["run"]["mean_of_steps"] = call.mean_of;
    OrderedJson behaviour = text_behaviour(dir, tokenizer.get());
    behaviour["logits"] = logits;
    const OrderedJson passport = {
        {"passport", kPassportVersion},
        {"made", utc_now()},
        {"longhaul", build_info().one_line()},
        {"parameters", model.config.description.num_parameters()},
        {"config", parse_ordered_json(model.config.source_json, "config.json")},
        {"run", facts.at("run")},
        {"base", facts.at("base")},
        {"files", hashes_of_files(dir)},
        {"behaviour", std::move(behaviour)}};
    const fs::path path = dir / kPassportFile;
    write_text_durable(path, json_text(passport) + "\n");
    if (!call.key.empty()) sign_file(path, call.key);
  });
}

}  // namespace longhaul::apps
