#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/families/model_config.h"

namespace longhaul::checkpoint {

/// Fills the first values of a box of a parameter, row-major, in fp32.
using FirstValues =
    std::function<void(const ParameterDescription& parameter,
                       const format::TensorSlice& box, std::span<float> out)>;

/// Where the values of an adapter come from.
struct AdapterValues {
  /// The tensors of the adapter and of the modules that are trained whole, under the
  /// names of parameters. If it is null, the adapter has its first values, and the
  /// modules have the values of the base.
  SharedSource files = nullptr;
  /// Used without `files`, for Init::Kind other than RowLengths, which is computed from
  /// the base.
  FirstValues first = {};
};

/// Returns the parameters of a model with an adapter. `base` has the parameters of the
/// base (as_parameters); `model` is the description with the adapter and is copied.
SharedSource with_adapter(const SharedSource& base, const AdapterValues& values,
                          const ModelDescription& model);

/// Returns the base's tensors with the adapter added to them: W + scale * B A, with DoRA
/// each row scaled to its length. `adapted` is made by with_adapter() and has the
/// parameters of `model`. The tensors keep the dtypes of the base.
SharedSource merged(const SharedSource& adapted, const ModelConfig& model);

/// Returns the xxh3-128 of the parameters of an adapter's base: of their names, dtypes,
/// shapes and bytes. `base` has the base's parameters. It is the same for any shards and
/// any number of ranks, which share the work. Collective.
std::string hash_of_base(const WeightsSource& base, const ModelDescription& model,
                         comm::Communicator& world);

/// Returns the same hash of those tensors of a source that have one of the names.
/// Collective.
std::string hash_of_tensors(const WeightsSource& source,
                            const std::set<std::string>& names,
                            comm::Communicator& world);

}  // namespace longhaul::checkpoint
