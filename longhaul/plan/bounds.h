#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/config/rules.h"
#include "longhaul/layout/rules.h"
#include "longhaul/plan/layout_settings.h"
#include "longhaul/plan/machine.h"
#include "longhaul/plan/unit_seconds.h"

namespace longhaul::plan {

/// The run, and the machine, for which layouts are compared. What it refers to must live
/// as long as it does.
struct SearchedRun {
  const RunConfig& config;
  const ModelDescription& model;
  const Machine& machine;
  const HardwareProfile& profile;
  int64_t ranks = 0;
  std::function<bool(const std::string&)> frozen;  ///< several threads call it
  double room = 0.0;  ///< bytes that one rank may hold, driver and libraries included
  KeptSettings kept = {};
};

/// What the seconds of a step go to.
enum class TimeCause {
  Computing,  ///< products, attention, and what moves through memory
  Again,
  Tensor,
  Context,
  Experts,
  Waiting,
  Gradients,
  Optimizer,
  Weights,
};
inline constexpr size_t kTimeCauses = 9;
/// Returns the cause's name: "exchanges over tp" ... as StepEstimate has it.
const char* cause_name(TimeCause cause);
using CauseSeconds = std::array<double, kTimeCauses>;

/// What the bytes of a rank go to.
enum class MemoryCause { Weights, Gradients, Masters, Moments, Whole, Activations, Rest };
inline constexpr size_t kMemoryCauses = 7;
/// Returns the cause's name: "activations" ...
const char* cause_name(MemoryCause cause);
using CauseBytes = std::array<double, kMemoryCauses>;

/// What a layout takes at least, without building it, or the rule that it breaks.
struct LayoutBound {
  std::optional<config::BrokenRule> broken = {};
  CauseBytes bytes{};      ///< of the stage that holds most
  CauseSeconds seconds{};  ///< of a step; not counted if the bytes exceed the room
  /// Whether the tp, cp and ep groups exchange between nodes.
  std::array<bool, 3> between{};
  double all_bytes() const;
  double all_seconds() const;
};

/// Goes through the layouts of a run and tells what each takes at least. A bound leaves
/// out what only a built layout has: padding, buckets, the exact order of the pipeline.
/// Nothing of it throws an exception.
class LayoutBounds {
 public:
  using Visit = std::function<void(const LayoutSettings&, const LayoutBound&)>;

  /// `run` must outlive this object.
  explicit LayoutBounds(const SearchedRun& run);

  /// Calls `visit` for every layout of a mesh (meshes_of). A mesh that breaks a rule is
  /// one layout, whatever other settings there are. Meshes with the same tp are fastest
  /// one after the other.
  void go_through(const LayoutSettings& mesh, const Visit& visit);

 private:
  /// What a micro batch takes in the units of one class at least.
  struct UnitNumbers {
    double forward = 0.0;  ///< seconds
    double backward = 0.0;
    double weight_gradients = 0.0;
    double again = 0.0;
    std::array<double, 3> exchanges{};  ///< seconds: tp, cp, ep
    double kept = 0.0;                  ///< bytes from the forward to the backward
    double put_off = 0.0;               ///< bytes until weight gradients are done
    double work = 0.0;                  ///< bytes while the unit computes

    void add(const UnitNumbers& other, double times);
  };
  /// Elements of parameters on the first rank of a stage.
  struct Elements {
    double matrices = 0.0;  ///< elements of matrices outside of experts
    double experts = 0.0;
    double vectors = 0.0;  ///< every rank keeps them whole
    double count = 0.0;    ///< parameters, of which each is in one bucket
    /// Units with such matrices: no bucket has those of two units.
    double matrix_units = 0.0;
    double expert_units = 0.0;

    void add(const Elements& more);
    /// Returns these elements so many times.
    Elements times(double number) const;
  };
  struct StageElements {
    Elements trained;
    Elements frozen;
    /// Elements that are gathered at the same time.
    double whole_matrices = 0.0;
    double whole_experts = 0.0;
    /// The blocks that a pass has to gather, summed over the chunks.
    Elements again;
    /// The blocks that passes through all chunks have to gather.
    Elements again_of_round;
  };
  /// The passes of a step on one stage.
  struct StagePasses {
    UnitNumbers all;         ///< of all its chunks, for a micro batch
    double busy = 0.0;       ///< seconds of a step
    double first = 0.0;      ///< seconds of chunk 0's forward, with its exchanges
    double last = 0.0;       ///< of chunk 0's backward
    double last_own = 0.0;   ///< of chunk 0's weight gradients
    double activations = 0;  ///< bytes
    double rest = 0.0;       ///< bytes of tokens and of what driver and libraries take
  };
  struct SameUnits {  ///< the units of a class in a stage
    size_t of_class = 0;
    double number = 0.0;
  };
  struct Cut {  ///< how layers lie in stages, by the stage's global number
    std::vector<StageSpec> stages;
    std::vector<std::vector<SameUnits>> units;
  };
  struct Variant {  ///< how the state is cut
    int32_t zero = 0;
    int32_t shards = 1;
    GroupSpread shard, replicas, expert_shard, expert_replicas;
  };

  void experts(const Visit& visit);
  void passes(const Visit& visit);
  void schedule(const Visit& visit);
  std::vector<Variant> variants();
  /// Returns the ranks of a shard group where the run keeps them; 0 where the mesh has no
  /// such groups.
  std::optional<int32_t> kept_shards();
  std::optional<config::BrokenRule> broken();
  /// Returns whether the ranks of every stage lie on nodes as those of the first do.
  bool stages_lie_alike() const;
  GroupSpread spread(layout::GroupKind kind, int32_t shards) const;
  void count_units(const layout::Passes& passes);
  /// Returns the elements of trained and of frozen parameters of a unit.
  std::array<Elements, 2> elements_of(
      std::span<const ParameterDescription> parameters) const;
  const Cut& cut();
  /// Returns the global number of a stage.
  size_t stage_of(int32_t chunk, int32_t stage) const;
  const std::vector<StageElements>& elements();
  StageElements elements_of_stage(int32_t stage);
  void fill_stages();
  void fill_memory(StagePasses& stage, const std::vector<UnitNumbers>& chunks,
                   int32_t number) const;
  CauseBytes bytes_of(const Variant& variant, const StageElements& elements,
                      const StagePasses& stage) const;
  double exchange(const GroupSpread& group, layout::Verb verb, double bytes,
                  double calls) const;
  void add_state_seconds(const Variant& variant, const StageElements& elements,
                         const StagePasses& stage, CauseSeconds& seconds) const;
  LayoutBound bound_of(const Variant& variant,
                       const std::vector<StageElements>& of_stage) const;

  const SearchedRun& run_;
  RunConfig config_;  ///< of the layout that is looked at
  layout::ModelLimits limits_;
  std::vector<size_t> class_of_;  ///< by unit
  std::vector<size_t> examples_;  ///< the first unit of each class
  std::map<int64_t, Cut> cuts_;   ///< by the number of stages
  /// By ep, pp and virtual stages, for one tp.
  std::map<std::array<int32_t, 3>, std::vector<StageElements>> elements_;
  std::map<int32_t, std::vector<std::array<Elements, 2>>> unit_elements_;  ///< by ep

  // The loops set these numbers, from the outer loops to the inner ones.
  LayoutSettings at_;
  layout::LayoutDescription layout_;  ///< without stages
  std::vector<Variant> variants_;
  std::array<GroupSpread, 3> spreads_{};  ///< of the tp, cp and ep groups
  GroupSpread stages_;                    ///< of the pipeline
  std::vector<UnitNumbers> numbers_;      ///< by class
  layout::Passes passes_;
  double message_s_ = 0.0;
  double micro_batches_ = 1.0;
  double again_share_ = 0.0;
  std::vector<StagePasses> of_stage_;
  double end_ = 0.0;  ///< seconds until the passes of a step have ended
  double busiest_ = 0.0;
};

}  // namespace longhaul::plan
