#pragma once

#include <memory>
#include <vector>

#include "longhaul/comm/mesh.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/layout/layout_description.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/data/data_parallel.h"
#include "longhaul/train/observe/capture.h"

namespace longhaul::train {

/// Reduces a batch of whole sequences to what `rank` of a context-parallel group holds:
/// its positions, which keep their values (document starts and ends stay indices of the
/// whole sequence). Targets of a whole sequence stay with the rank that has the first
/// position; on the other ranks they become kIgnore.
void take_positions(const layout::ContextLayout& context, int rank,
                    data::TokenBatch& batch);

/// A layout in use: its description, and the communicators that were made from it.
struct Layout : layout::LayoutDescription {
  std::unique_ptr<comm::Mesh> mesh;
  parallel::DataGroups groups;
  /// Null where this rank has all features.
  std::unique_ptr<nn::SplitRegion> region;
  nn::AttentionCore attention;
  std::unique_ptr<nn::ExpertDispatch> experts;  ///< null where all experts are here
  /// Adds fp32 sums over cp; empty where every rank has all positions.
  std::function<void(at::Tensor&)> sum_positions;
  /// The group in which stages pass activations and gradients on.
  comm::Communicator* boundaries = nullptr;
  /// All ranks, for LAMB's sums; a group for device tensors where LAMB is the optimizer.
  comm::Communicator* everyone = nullptr;

  /// Returns where this rank's activations lie among those of all ranks.
  ActivationPlace activation_place(const RunConfig& config) const;
  /// Reduces each batch to this rank's positions of its sequences.
  void take_own_positions(std::vector<data::TokenBatch>& batches) const;

  /// Returns the values of fp64 tensors on the layout's device, which the host needs now.
  /// On a device they are copied together and waited for once. Meanwhile the groups are
  /// watched: where a rank is lost, the wait ends with an error that names the operation
  /// that was under way.
  std::vector<std::vector<double>> read_on_host(
      const std::vector<at::Tensor>& tensors) const;

  at::Device device = at::kCPU;
  std::vector<std::shared_ptr<comm::Communicator>> owned;
  comm::Communicator* keep(std::shared_ptr<comm::Communicator> group);
  /// Returns a group for tensors of the device, made from a group for host memory; on a
  /// CPU the given group itself. Collective.
  comm::Communicator* for_tensors(comm::Communicator& group);
};

/// Returns the numbers of all ranks of `group`, by rank; each rank gives equally many
/// numbers. Collective.
std::vector<int64_t> gather_numbers(comm::Communicator& group, std::vector<int64_t> mine);

/// Returns the machine of each rank. `node` has the ranks of this machine. Collective.
layout::Placement placement_of(comm::Communicator& world, comm::Communicator& node);

/// Splits the world into the groups that the description names. Collective.
Layout make_layout(layout::LayoutDescription description, const RunConfig& config,
                   at::Device device, std::shared_ptr<comm::Communicator> world);

}  // namespace longhaul::train
