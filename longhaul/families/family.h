#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/families/config_fields.h"
#include "longhaul/families/describe.h"
#include "longhaul/families/model_config.h"

namespace longhaul::families {

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
  /// Reads and checks them: fills the positions and the network.
  /// InputError for whatever changes the mathematics and is not built.
  virtual void read(const ConfigFields& fields, ModelConfig& config) const = 0;
  /// What a network of `read` consists of.
  virtual ModelDescription describe(const Network& network) const {
    return families::describe(network);
  }
};

const std::vector<const Family*>& all_families();
/// The fields of config.json that are read of a model of the family, those of every model
/// among them.
std::vector<std::string> fields_read(const Family& family);
/// Null for one that is not known.
const Family* find_family(std::string_view model_type);

}  // namespace longhaul::families
