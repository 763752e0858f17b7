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
  std::string model_type;            ///< as it says
  std::optional<ModelConfig> model;  ///< of a family that this program trains
  std::string not_read;              ///< why a config of a known family is not read

  bool is_llama() const { return model && model_type == "llama"; }
};

/// What a foreign checkpoint holds, as whole tensors with the names of Hugging Face.
struct ForeignModel {
  std::string what;  ///< "NxD checkpoint, tp 4, pp 2, xser"
  fs::path path;     ///< what was really read
  ForeignConfig config;
  std::shared_ptr<ForeignFiles> files;
  std::map<std::string, Mosaic> weights;
  // Optimizer state: only where it was asked for and maps completely.
  std::map<std::string, Mosaic> exp_avg;
  std::map<std::string, Mosaic> exp_avg_sq;
  std::map<std::string, Mosaic> masters;  ///< empty: the weights are all there is
  std::optional<int64_t> updates;         ///< steps that the optimizer has counted
  /// Tensors that it has counted fewer of; those with 0 have no moments.
  std::map<std::string, int64_t> fewer_updates;
  std::optional<int64_t> step;       ///< of the checkpoint
  MergeReport merged;                ///< how the ranks were put together
  bool has_optimizer = false;        ///< the source holds optimizer state
  std::vector<std::string> notes;    ///< lines for the person
  std::vector<std::string> ignored;  ///< what was passed over by rule
};

struct ForeignOptions {
  fs::path config;  ///< HF directory or config.json; empty: look beside the source
  std::optional<KvOrder> kv_order;
  std::optional<Hardware> hardware;
  bool want_optimizer = false;  ///< then InputError where its state does not map
  ChildLimits limits;
};

/// Recognises what `path` is and reads where its tensors lie; elements are read later
/// (but copies that several ranks hold are compared here). InputError says what was found
/// and what is missing, unknown or ambiguous.
ForeignModel open_foreign(const fs::path& path, const ForeignOptions& options);

/// `given`, or config.json in one of `places`, in this order.
ForeignConfig find_config(const fs::path& given, const std::vector<fs::path>& places);

/// The dict of tensors of a file: the root, or one under model, state_dict or module. Its
/// keys from the root go to `found_at`. InputError when there is none.
PickleTree::Ref find_state_dict(const ForeignState& state, const std::string& what,
                                std::string* found_at = nullptr);

/// Weights that a file or directory holds whole: .pt, .pth, .bin, sharded .bin with
/// index. Nothing for other paths.
std::optional<ForeignModel> open_state_dict(const fs::path& path,
                                            const ForeignOptions& options);
std::optional<ForeignModel> open_nxd(const fs::path& path, const ForeignOptions& options);
/// torch.distributed.checkpoint directories, one or one per tensor-parallel rank.
std::optional<ForeignModel> open_dcp(const fs::path& path, const ForeignOptions& options);

/// Merges ranks[pp][tp] by the family's rules or the shapes of its description, checks
/// that the result is the model of the config, and notes what was found. For families
/// that are not known the one rank's names are kept.
void set_weights(ForeignModel& model, std::vector<std::vector<NamedTensors>> ranks,
                 const ForeignOptions& options);
/// The same for one kind of optimizer state, by the order that set_weights found. It may
/// lack those of `updates`, by the names of the source, that had none.
std::map<std::string, Mosaic> merge_state(
    const ForeignModel& model, std::vector<std::vector<NamedTensors>> ranks,
    const std::string& kind, const std::map<std::string, int64_t>& updates = {});

/// ForeignModel::updates and fewer_updates, from counts by the names of the source.
/// InputError where parameters have different counts and one of them cannot be named.
void take_updates(ForeignModel& model, const std::map<std::string, int64_t>& updates);

/// fewer_updates by the names of parameters.
std::map<std::string, int64_t> fewer_updates_of_parameters(const ForeignModel& model);

}  // namespace longhaul::imports
