#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/node_reader.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::session {

/// The files that ranks read together.
struct StateFiles {
  const checkpoint::StoredTensors& stored;
  std::string where;  ///< for messages
  /// The source that converts tensors that these files hold in another form; null for a
  /// checkpoint of this program.
  const checkpoint::WeightsSource* source = nullptr;

  static StateFiles of(const checkpoint::WeightsSource& source);
};

/// Reads the state tensors that were added, in batches that fit the host memory between
/// the files and the tensors, or at once and in place where there is no such memory. The
/// ranks of a machine read together (checkpoint/read/node_reader.h).
class StateReader {
 public:
  /// `staging` is the size of the host memory between the files and the tensors; absent:
  /// none on a CPU, 256 MiB elsewhere.
  StateReader(StateFiles files, const tensor::FlatBuffers& flat,
              std::optional<int64_t> staging = {});

  /// Adds what this rank owns of a bucket in `tensor`, which begins with the first owned
  /// element. A parameter is not read if `leaves_out` returns true for its name.
  void add(const char* kind, const at::Tensor& tensor, const tensor::Bucket& bucket,
           const std::function<bool(const std::string&)>& leaves_out = {});

  /// Reads all parts. Throws InputError, the same on all ranks of `node`, for files that
  /// cannot be read, and for weights that are NaN or infinite
  /// (checkpoint/finite_values.h). Collective over `node`.
  checkpoint::ReadReport run(comm::Communicator& node);

 private:
  /// A part of a parameter that is read at once.
  struct Part {
    checkpoint::ReadRequest request;
    at::Tensor to;
    /// The host memory that the bytes are read into; `to` itself where nothing is staged.
    at::Tensor host;
  };
  size_t begin_batch(size_t first, std::vector<checkpoint::ReadRequest>& together);

  StateFiles files_;
  bool staged_;
  int64_t batch_bytes_ = std::numeric_limits<int64_t>::max();
  std::vector<Part> parts_;
};

/// Reads the values of the weights, for a session without an optimizer and so without
/// masters. DataParallel::share_weights has to follow on all ranks. Collective over
/// `node`.
checkpoint::ReadReport load_weights(tensor::FlatBuffers& flat,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node);

}  // namespace longhaul::session
