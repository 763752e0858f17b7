#include "longhaul/session/pairs.h"

#include <algorithm>

#include "longhaul/config/rules.h"

namespace longhaul::session {
namespace {

constexpr const char* kFigures[] = {"rewards_chosen", "rewards_rejected",
                                    "rewards_accuracies", "logps_chosen",
                                    "logps_rejected"};

size_t first_figure(const ModelDescription& model) {
  return static_cast<size_t>(
      std::ranges::find(model.losses, LossTerm::Over::Figure, &LossTerm::over) -
      model.losses.begin());
}

}  // namespace

void train_on_pairs(const RunConfig& config, ModelConfig& model) {
  if (!config.preference.loss) return;
  std::vector<LossTerm>& losses = model.description.losses;
  if (losses.front().name != kNextToken) {
    config::fail_key(config, "preference.loss",
                     "[preference] trains models that predict the next token; {} is of "
                     "type \"{}\"",
                     model.source_path.string(), model.model_type);
  }
  losses.front().name = kPreference;
  if (config.preference.loss == PreferenceLoss::Orpo) {
    losses.insert(losses.begin() + 1, {.name = kChosenToken});
  }
  for (const char* name : kFigures) {
    losses.push_back({.name = name, .over = LossTerm::Over::Figure});
  }
}

void prepare_pairs(const Session& session, nn::PairContext& pairs) {
  pairs.settings = session.config().preference;
  pairs.figures = first_figure(session.model().description);
}

run::PairFigures pair_figures(const Session& session, const std::vector<double>& sums,
                              double pairs) {
  run::PairFigures figures;
  const size_t first = first_figure(session.model().description);
  if (first == session.model().description.losses.size() || pairs == 0.0) return figures;
  const auto mean = [&](size_t i) { return sums.at(first + i) / pairs; };
  figures.rewards_chosen = mean(0);
  figures.rewards_rejected = mean(1);
  figures.rewards_margins = mean(0) - mean(1);
  figures.rewards_accuracies = mean(2);
  figures.logps_chosen = mean(3);
  figures.logps_rejected = mean(4);
  return figures;
}

}  // namespace longhaul::session
