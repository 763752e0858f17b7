#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/families/model_config.h"

namespace longhaul::checkpoint {

/// An architecture of llama.cpp, and how it differs from the others: what its graph takes
/// (llama.cpp's src/models), and what the converter writes for it (conversion).
struct LlamaCppArchitecture {
  const char* model_type;  ///< of config.json
  const char* name;        ///< of llama.cpp
  /// Turns neighbouring features of a head (GgufPart::heads).
  bool turns_neighbours = false;
  bool joins_projections = false;  ///< queries, keys and values are one tensor
  bool any_head_dim = false;       ///< heads may have another width than width / heads
  bool always_head_dim = false;    ///< the converter writes the width of heads always
  bool biases = false;             ///< of attention's output and of the feed-forward
  bool windows = false;            ///< layers may have windows
  bool needs_head = false;         ///< a tied head has to be written a second time
  bool scales_by_table = false;    ///< knows rope_freqs.weight (llama3)
  bool says_vocabulary = false;    ///< the converter writes the vocabulary's size
};

/// Returns the architecture of models of this type, or null.
const LlamaCppArchitecture* find_architecture(std::string_view model_type);
/// Returns the names of all architectures for messages, with commas between them.
std::string gguf_architectures();

/// Returns the attention of a decoder's block.
const families::Attention& attention_in(const families::Block& block);
/// Returns the branches of a block: its attention, then its feed-forward.
std::vector<const families::Branch*> branches_of(const families::Block& block);

/// A model that is described for llama.cpp. The model must outlive this object.
struct LlamaCppModel {
  LlamaCppModel(const ModelConfig& model, const LlamaCppArchitecture& of);

  bool is(std::string_view model_type) const { return config.model_type == model_type; }
  const families::Attention& attention() const {
    return attention_in(network.blocks.front());
  }
  const RopeConfig* rope() const { return full ? &full->rotation->rope : nullptr; }

  const ModelConfig& config;
  const families::Network& network;
  const LlamaCppArchitecture& architecture;
  OrderedJson json;
  const families::LanguageHead& head;
  std::map<std::string, std::vector<int64_t>> shapes;
  const families::Attention* full = nullptr;  ///< the first that turns, without a window
  const families::Attention* sliding = nullptr;  ///< the first that turns, with a window
};

/// Throws InputError that names what llama.cpp's architecture does not have.
void check_architecture(const LlamaCppModel& model);

}  // namespace longhaul::checkpoint
