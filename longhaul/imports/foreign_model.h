#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/model_config.h"
#include "longhaul/imports/foreign_files.h"
#include "longhaul/imports/llama_merge.h"
#include "longhaul/imports/mosaic.h"

namespace longhaul::imports {

/// The config.json that goes with a foreign checkpoint.
struct ForeignConfig {
  fs::path path;                     ///< config.json
  fs::path side_dir;                 ///< where tokenizer files lie; may be empty
  std::string model_type;            ///< the config's model_type
  std::optional<ModelConfig> model;  ///< of a family that this program trains
  std::string not_read;              ///< why a config of a known family is not read

  bool is_llama() const { return model && model_type == "llama"; }
};

/// What a foreign checkpoint holds, as whole tensors with the names of Hugging Face.
struct ForeignModel {
  std::string what;  ///< "NxD checkpoint, tp 4, pp 2, xser"
  fs::path path;     ///< the checkpoint that was read, inside of the path that was given
  ForeignConfig config;
  std::shared_ptr<ForeignFiles> files;
  std::map<std::string, Mosaic> weights;
  // Optimizer state, if it was asked for and maps completely.
  std::map<std::string, Mosaic> exp_avg;
  std::map<std::string, Mosaic> exp_avg_sq;
  std::map<std::string, Mosaic> masters;  ///< empty: the weights are all there is
  std::optional<int64_t> updates;         ///< steps that the optimizer has counted
  /// Counts of tensors with fewer steps; tensors with 0 steps have no moments.
  std::map<std::string, int64_t> fewer_updates;
  std::optional<int64_t> step;          ///< step of the checkpoint
  MergeReport merged;                   ///< how the ranks were put together
  std::optional<FusedRows> fused_rows;  ///< what the user says
  bool has_optimizer = false;           ///< the source holds optimizer state
  std::vector<std::string> notes;       ///< lines for the person
  std::vector<std::string> ignored;     ///< tensors that were skipped by a rule
};

struct ForeignOptions {
  fs::path config;  ///< HF directory or config.json; empty: look beside the source
  std::optional<KvOrder> kv_order;
  std::optional<Hardware> hardware;
  std::optional<FusedRows> fused_rows;
  bool want_optimizer =
      false;  ///< read optimizer state, or throw InputError if it does not map
  system::ChildLimits limits;
};

/// Recognises the kind of checkpoint at `path` and reads where its tensors lie. Elements
/// are read later, except that copies that several ranks hold are compared here. Throws
/// InputError that says what was found and what is missing, unknown or ambiguous.
ForeignModel open_foreign(const fs::path& path, const ForeignOptions& options);

/// Finds the config: `given`, or else config.json in the first of `places` that has one.
ForeignConfig find_config(const fs::path& given, const std::vector<fs::path>& places);

/// Returns the dict of tensors of a file: the root, or a dict under model, state_dict or
/// module. The keys from the root to the dict go to `found_at`. Throws InputError if
/// there is none.
PickleTree::Ref find_state_dict(const ForeignState& state, const std::string& what,
                                std::string* found_at = nullptr);

// Each function returns the model of a checkpoint of its kind, or nothing for other
// paths.

/// Opens weights that a file or directory holds whole: .pt, .pth, .bin, sharded .bin with
/// index.
std::optional<ForeignModel> open_state_dict(const fs::path& path,
                                            const ForeignOptions& options);
/// Opens a checkpoint of neuronx-distributed.
std::optional<ForeignModel> open_nxd(const fs::path& path, const ForeignOptions& options);
/// Opens directories of torch.distributed.checkpoint: one, or one per tensor-parallel
/// rank.
std::optional<ForeignModel> open_dcp(const fs::path& path, const ForeignOptions& options);

/// Merges ranks[pp][tp] by the family's rules or by the shapes of its description, checks
/// that the result is the model of the config, and notes what was found. For unknown
/// families there must be one rank, whose names are kept.
void set_weights(ForeignModel& model, std::vector<std::vector<NamedTensors>> ranks,
                 const ForeignOptions& options);
/// Merges one kind of optimizer state, by the order of heads that set_weights found.
/// Tensors whose count in `updates` (by the names of the source) is 0 may be missing.
std::map<std::string, Mosaic> merge_state(
    const ForeignModel& model, std::vector<std::vector<NamedTensors>> ranks,
    const std::string& kind, const std::map<std::string, int64_t>& updates = {});

/// Sets ForeignModel::updates and fewer_updates from counts by the names of the source.
/// Throws InputError if parameters have different counts and one parameter cannot be
/// named.
void take_updates(ForeignModel& model, const std::map<std::string, int64_t>& updates);

/// Returns fewer_updates by the names of parameters.
std::map<std::string, int64_t> fewer_updates_of_parameters(const ForeignModel& model);

}  // namespace longhaul::imports
