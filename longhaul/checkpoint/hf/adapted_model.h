#pragma once

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"
#include "longhaul/objects/access.h"

namespace longhaul::checkpoint {

/// A base and an adapter together.
struct AdaptedModel {
  SharedSource source;     ///< has all parameters (with_adapter)
  ModelConfig config;      ///< with the adapter (add_adapter)
  AdapterSection adapter;  ///< what the adapter is
};

/// Returns the model of the run of a checkpoint of an adapter (holds_adapter), with the
/// adapter (add_adapter).
ModelConfig model_of_adapter(const WeightsSource& files);

/// Returns the model of a run of an adapter: its base, with the adapter of the checkpoint
/// `files` (holds_adapter). The base is where the checkpoint's adapter_config.json says,
/// and `objects` reads it at an address. Throws InputError if the base
/// is not there, and ConfigError if it is no longer the one of the training. Collective.
AdaptedModel with_own_base(const SharedSource& files, const objects::Access& objects,
                           comm::Communicator& world);

/// Returns the model in `base`, as it was opened, with the adapter in PEFT's format in
/// the directory `dir`. Throws InputError if the adapter does not fit the base.
/// Collective.
AdaptedModel with_adapter_of(const fs::path& dir, const SharedSource& base,
                             comm::Communicator& world);

}  // namespace longhaul::checkpoint
