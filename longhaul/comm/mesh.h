#pragma once

#include <memory>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/layout/mesh_shape.h"

namespace longhaul::comm {

/// The ranks arranged along named axes, with a group for each axis.
class Mesh {
 public:
  /// Splits the world once for each axis. The product of the axes is the world's size.
  /// Collective.
  Mesh(std::shared_ptr<Communicator> world, layout::MeshShape shape);

  const layout::MeshShape& shape() const { return shape_; }
  const layout::MeshIndex& index() const { return index_; }
  Communicator& world() const { return *world_; }
  Communicator& pp() const { return *pp_; }
  Communicator& dp() const { return *dp_; }
  Communicator& cp() const { return *cp_; }
  Communicator& tp() const { return *tp_; }
  /// Returns the group dp x cp: the ranks with the same weights and different data. ZeRO
  /// shards over these ranks.
  Communicator& data() const { return *data_; }

  /// Returns the rank's place for errors and logs: "pp 1 dp 0 cp 0 tp 3".
  std::string coordinates() const { return run::to_string(index_); }

 private:
  layout::MeshShape shape_;
  layout::MeshIndex index_;
  std::shared_ptr<Communicator> world_;
  std::shared_ptr<Communicator> pp_, dp_, cp_, tp_, data_;
};

}  // namespace longhaul::comm
