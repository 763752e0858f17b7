#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/families/config_fields.h"
#include "longhaul/families/describe.h"
#include "longhaul/families/model_config.h"

namespace longhaul::families {

/// The class of tokenizers that reads tokenizer.json as it stands. For a family that has
/// this class as `tokenizer`, the class named in the model's files is ignored.
inline constexpr const char* kReadsTokenizerFile = "TokenizersBackend";

/// A family of models: how its config.json is read, and which network the file stands
/// for. Each is made in the folder of its name. Lists of names have spaces between the
/// names.
struct Family {
  std::string model_type;     ///< as config.json has it
  std::string about;          ///< tells people which models are of this family
  std::string architectures;  ///< names that config.json may have, the usual one first
  std::string
      fields;  ///< fields of config.json beside those that are read of every model
  /// The names among `fields` that may be null. The class in transformers refuses null
  /// for all others.
  std::string nullable;
  /// Reads and checks the family's fields, and fills the network. Throws InputError for a
  /// field that changes the mathematics in a way that the program lacks.
  std::function<void(const ConfigFields& fields, ModelConfig& config)> read;
  /// The class of tokenizers that transformers registers for the model_type; empty: none.
  std::string tokenizer = {};
  /// Returns the description of a network that `read` has filled.
  std::function<ModelDescription(const Network& network)> describe = families::describe;
};

const std::vector<Family>& all_families();
/// Returns the fields of config.json that are read of a model of the family, with those
/// that are read of every model.
std::vector<std::string> fields_read(const Family& family);
/// Returns the family, or null for a type that is not known.
const Family* find_family(std::string_view model_type);

}  // namespace longhaul::families
