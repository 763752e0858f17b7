#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "apps/verbs/planned_run.h"
#include "longhaul/base/json.h"
#include "longhaul/plan/search.h"

namespace longhaul::apps {

/// What a search for the best layout is asked.
struct SearchCall {
  size_t top = 10;         ///< layouts to tell
  std::string until = {};  ///< a date, or a date and time, in UTC; empty: none
  std::optional<double> budget = {};
  double filled = 1.0;  ///< share of a rank's memory that a layout may fill
};

/// The layouts of a run on a cluster.
struct SearchedLayouts {
  const CheckedRun& run;
  PlannedOn on;
  plan::SearchResult found;
  double room = 0.0;  ///< bytes of one rank
  /// Bytes of a node's memory that saves and peer memory leave, whatever the layout is.
  double host_left = 0.0;
  int64_t steps = 0;           ///< 0: run.epochs, which depends on the data
  plan::RunTotals total = {};  ///< of the best layout, without failures
  std::optional<std::string> experts_note = {};  ///< as note_on_experts has it
};

/// Finds the best layouts of a run. `on` says the most nodes with --until and --budget,
/// and the number of ranks otherwise. Throws ConfigError for a date that is past or is no
/// date, and for a machine that lacks a link or a price. Throws ConfigError too if no
/// number of nodes suffices.
SearchedLayouts search_run(const CheckedRun& run, const PlannedOn& on,
                           const SearchCall& call);

void print_search(const SearchedLayouts& searched);
OrderedJson search_json(const SearchedLayouts& searched);

}  // namespace longhaul::apps
