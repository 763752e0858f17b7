#pragma once

#include <string>
#include <vector>

#include "longhaul/monitor/plot.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/monitor/set_changes.h"

namespace longhaul::monitor {

/// Returns the values of one member of the records, by step, for the steps that count.
std::vector<Point> series(const Records& records, double run::StepRecord::* member);
/// Returns the values of one member of the records, by step, for the steps that count.
/// Returns no points if no step has the member.
std::vector<Point> series_if_any(const Records& records,
                                 double run::StepRecord::* member);

/// Returns the losses of a validation set, by step.
std::vector<Point> points_of(const SetChange& set);

/// Returns the cards of a run on pairs: rewards, the share of pairs with a positive
/// margin, and log-probabilities. Returns nothing for other runs.
std::string pair_cards(const RunFiles& run, const std::vector<PlotMark>& marks);

/// Returns the plots over steps, each in a card: loss with validation, the change of each
/// validation set, the cards of tasks and of pairs, gradient norm, learning rate. Then
/// come throughput, utilisation, memory, and the cards of experts. Restarts and bad steps
/// are marked in all but the change of validation sets.
std::string plot_cards(const RunFiles& run);

}  // namespace longhaul::monitor
