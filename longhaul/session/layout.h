#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "longhaul/comm/mesh.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/layout/group_use.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/parallel/data/data_parallel.h"
#include "longhaul/session/capture.h"

namespace longhaul::session {

/// Reduces a batch of whole sequences to what `rank` of a context-parallel group holds:
/// its positions, which keep their values (document starts and ends stay indices of the
/// whole sequence). Where a sequence has one target for all its positions, the rank with
/// the first position keeps the target; on the other ranks it becomes kIgnore.
void take_positions(const layout::ContextLayout& context, int rank,
                    data::TokenBatch& batch);

/// A layout in use: the communicators that were made from its description. It owns them,
/// and whoever uses them must not outlive it.
class Layout {
 public:
  /// Splits the world into the groups that the description names. Collective.
  Layout(layout::LayoutDescription description, const RunConfig& config,
         at::Device device, std::shared_ptr<comm::Communicator> world);

  const layout::LayoutDescription& description() const { return description_; }
  const comm::Mesh& mesh() const { return *mesh_; }
  const parallel::DataGroups& groups() const { return groups_; }
  /// Returns the group in which stages pass activations and gradients on.
  comm::Communicator& boundaries() const { return *boundaries_; }
  /// Returns the group of all ranks, over which LAMB adds its sums. The group takes
  /// tensors of the device where LAMB is the optimizer, else host memory.
  comm::Communicator& everyone() const { return *everyone_; }
  /// Returns the bytes that the device's collectives have of its memory now; nothing if
  /// they do not tell.
  std::optional<uint64_t> bytes_of_groups() const;
  /// Returns the group of a kind whose operations on tensors of the device a step starts;
  /// null where no step starts any.
  comm::Communicator* tensor_group(layout::GroupKind kind) const;

  /// Gives a forward pass what it needs of the layout: the split of features, the core of
  /// attention, and the dispatch of tokens to their experts. It also gives the sums over
  /// positions, of the routers' statistics and of the log-probabilities of pairs.
  void prepare(nn::ForwardContext& context) const;
  /// Returns where this rank's activations lie among those of all ranks.
  ActivationPlace activation_place(const RunConfig& config) const;
  /// Reduces each batch to this rank's positions of its sequences.
  void take_own_positions(std::vector<data::TokenBatch>& batches) const;

  /// Returns what a host must call now and then while it waits for the device: it throws
  /// where a rank is lost, and names the operation that was under way. It may outlive the
  /// layout.
  std::function<void()> watch() const;
  /// Returns a copy of a tensor on the host, or the tensor itself where it is there
  /// already. Waits for the device and watches the groups meanwhile (watch()).
  at::Tensor to_host(const at::Tensor& values) const;
  /// Returns the values of fp64 tensors on the layout's device, which the host needs now.
  /// They are copied together by to_host(), and waited for once.
  std::vector<std::vector<double>> read_on_host(
      const std::vector<at::Tensor>& tensors) const;

 private:
  comm::Communicator* keep(std::shared_ptr<comm::Communicator> group);
  /// Returns a group for tensors of the device, made from a group for host memory; on a
  /// CPU the given group itself. Collective.
  comm::Communicator* for_tensors(comm::Communicator& group, const layout::GroupUse& use);
  layout::GroupUse use_of(layout::GroupKind kind) const {
    return layout::use_of(kind, context_);
  }
  /// Returns this rank's group of a kind, cut from the group `whole`, or `whole` itself
  /// where the group is all of it. Collective over `whole`.
  comm::Communicator* cut(comm::Communicator& whole, layout::GroupKind kind);
  void cut_data_group();
  void join_tied_stages();
  void split_features();
  void split_positions();
  void spread_experts();

  layout::LayoutDescription description_;
  ContextKind context_;
  at::Device device_;
  std::unique_ptr<comm::Mesh> mesh_;
  std::vector<std::shared_ptr<comm::Communicator>> owned_;
  parallel::DataGroups groups_;
  std::unique_ptr<nn::SplitRegion> region_;  ///< null where this rank has all features
  nn::AttentionCore attention_;
  std::unique_ptr<nn::ExpertDispatch> experts_;  ///< null where all experts are here
  /// Adds sums over cp; empty where every rank has all positions.
  std::function<void(at::Tensor&)> sum_positions_;
  comm::Communicator* cp_ = nullptr;  ///< null where every rank has all positions
  comm::Communicator* ep_ = nullptr;  ///< null where all experts are here
  comm::Communicator* boundaries_ = nullptr;
  comm::Communicator* everyone_ = nullptr;
};

/// Returns the numbers of all ranks of `group`, by rank; each rank gives equally many
/// numbers. Collective.
std::vector<int64_t> gather_numbers(comm::Communicator& group, std::vector<int64_t> mine);

/// Returns the machine of each rank. `node` has the ranks of this machine. Collective.
layout::Placement placement_of(comm::Communicator& world, comm::Communicator& node);

}  // namespace longhaul::session
