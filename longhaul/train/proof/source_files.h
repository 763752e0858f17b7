#pragma once

#include <functional>

#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/models/source_model.h"

namespace longhaul::train {

/// The files of [init] weights, for models::SourceModel. A matrix is read in blocks of
/// rows, one block at a time; each rank of `world` reads and multiplies an equal share of
/// the rows.
class SourceFiles : public models::SourceFiles {
 public:
  /// `source` and `world` must outlive this object.
  SourceFiles(const checkpoint::WeightsSource& source, comm::Communicator& world)
      : source_(source), world_(world) {}

  at::Tensor vector(const std::string& name, int64_t n) const override;
  at::Tensor rows(const std::string& name, int64_t rows, int64_t width,
                  const at::Tensor& ids) const override;
  at::Tensor product(const at::Tensor& x, const std::string& name,
                     int64_t out) const override;
  at::Tensor transposed_product(const at::Tensor& x, const std::string& name,
                                int64_t out) const override;

 private:
  /// Reads `count` indices of one dim of a tensor, from `begin` on.
  at::Tensor part(const std::string& name, const std::vector<int64_t>& shape, size_t dim,
                  int64_t begin, int64_t count) const;
  /// Multiplies x by W [out, in]; `read(begin, count)` returns `count` rows of W.
  /// Collective.
  at::Tensor multiply(const at::Tensor& x, int64_t out,
                      const std::function<at::Tensor(int64_t, int64_t)>& read) const;

  const checkpoint::WeightsSource& source_;
  comm::Communicator& world_;
};

}  // namespace longhaul::train
