#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/families/config_fields.h"
#include "longhaul/families/describe.h"
#include "longhaul/families/model_config.h"

namespace longhaul::families {

/// A field of a model's config.json, for comparing two models.
struct Field {
  std::string name;
  std::string value;       ///< numbers to the last bit
  bool of_result = false;  ///< it changes what the weights compute
};

/// A family of models: how its config.json is read, and which network it stands for. One
/// object each, in the folder of its name.
class Family {
 public:
  virtual ~Family() = default;
  /// As config.json has it.
  virtual std::string model_type() const = 0;
  /// For people: which models are of this family.
  virtual std::string about() const = 0;
  /// That config.json may name, the usual one first.
  virtual std::vector<std::string> architectures() const = 0;
  /// Of config.json, beside those that are read of every model.
  virtual std::vector<std::string> fields() const = 0;
  /// Reads and checks them: fills the positions, the settings and the network.
  /// InputError for whatever changes the mathematics and is not built.
  virtual void read(const ConfigFields& fields, ModelConfig& config) const = 0;
  /// What a network of `read` consists of.
  virtual ModelDescription describe(const Network& network) const {
    return families::describe(network);
  }
  /// The settings that `read` has filled in.
  virtual std::vector<Field> settings(const ModelConfig& config) const = 0;
};

const std::vector<const Family*>& all_families();
/// Null for one that is not known.
const Family* find_family(std::string_view model_type);

}  // namespace longhaul::families
