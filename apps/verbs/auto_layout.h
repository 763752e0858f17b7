#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/inputs/checked_run.h"
#include "longhaul/config/hardware_profile.h"
#include "longhaul/config/run_config.h"

namespace longhaul::apps {

/// Returns the names of the machines that come with the program, sorted.
std::vector<std::string> known_machines();

/// Reads the profile of a machine that comes with the program, or a file of that name.
/// `price` is what a node costs an hour: below 0 that of the profile, 0 for no money.
/// Throws InputError for an unknown name, and ConfigError for a profile that says too
/// little of its nodes.
HardwareProfile machine_profile(const std::string& name, double price);

/// Throws InputError for a run whose model is not on this machine.
void check_planned(const CheckedRun& run);
/// Prints the run's warnings, without those that a start alone would find out.
void say_planned_warnings(const CheckedRun& run);

/// The machines for which parallel.auto chooses a layout.
struct AutoCall {
  /// As --hardware names it; empty: that of an earlier choice, else run.hardware.
  std::string hardware = {};
  int64_t nodes = 0;
  int64_t ranks = 0;       ///< 0: all of the nodes
  int64_t node_ranks = 0;  ///< 0: the devices of the machine's node
};

/// A layout that parallel.auto has chosen.
struct AutoLayout {
  std::vector<std::string> sets;  ///< for --set, behind the others
  std::string text;               ///< chosen_text() of the run with it
  std::string hardware;           ///< a name, or an absolute path
  int64_t node_ranks = 0;
};

/// Returns the layout that parallel.auto chooses; nothing without parallel.auto. The
/// choice depends on the settings, the profile and the ranks alone: the fastest layout
/// that the search finds. A choice that the run has made earlier stays, for the same
/// machine, ranks and given settings, while it fits. Throws ConfigError where no layout
/// fits, or where no machine is named.
std::optional<AutoLayout> auto_layout(const RunConfig& config, const AutoCall& call);

/// Returns `sets`, and behind them those of the layout that parallel.auto chooses. Throws
/// what load_run_config() and auto_layout() throw.
std::vector<std::string> with_auto_layout(const std::string& file,
                                          std::vector<std::string> sets,
                                          const AutoCall& call);

/// Appends the layout that parallel.auto chooses to `sets`, for a run that is to train.
/// Returns it; nothing without parallel.auto. Also throws ConfigError for a machine on
/// which `train` does not run.
std::optional<AutoLayout> add_auto_layout(const RunConfig& config, const AutoCall& call,
                                          std::vector<std::string>& sets);

/// The --set values of a supervised run by its number of nodes. With parallel.auto each
/// number has a layout of its own. A layout is chosen when it is asked for first.
class StartLayouts {
 public:
  /// `config` must outlive this object; `sets` are those that it was read with.
  StartLayouts(const RunConfig& config, std::vector<std::string> sets, int64_t node_ranks)
      : config_(config), sets_(std::move(sets)), node_ranks_(node_ranks) {}

  /// Returns the values for a start on so many nodes. Throws what auto_layout() throws.
  const std::vector<std::string>& on(int64_t nodes);
  /// Returns whether the run trains on so many nodes. Says on standard error why no
  /// layout can be chosen.
  bool fits(int64_t nodes);

 private:
  /// Returns whether the settings hold no layout for so many nodes.
  bool chooses(int64_t nodes) const;

  const RunConfig& config_;
  std::vector<std::string> sets_;
  int64_t node_ranks_;
  std::map<int64_t, std::vector<std::string>> chosen_;  ///< by nodes
  std::set<int64_t> lacking_;  ///< numbers of nodes for which there is no layout
};

}  // namespace longhaul::apps
