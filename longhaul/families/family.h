#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/base/text.h"
#include "longhaul/families/config_fields.h"
#include "longhaul/families/describe.h"
#include "longhaul/families/model_config.h"

namespace longhaul::families {

/// A family of models: how its config.json is read, and which network the file stands
/// for. There is one object of each family, in the folder of the family's name.
class Family {
 public:
  /// `model_type` is as config.json has it. `about` tells people which models are of this
  /// family. `architectures` are the names that config.json may have there, the usual one
  /// first, and `fields` those of config.json beside the fields that are read of every
  /// model. `nullable` are the fields of these that may be null; the class in
  /// transformers refuses a null elsewhere. All three have spaces between the names.
  Family(std::string model_type, std::string about, std::string_view architectures,
         std::string_view fields, std::string_view nullable = {})
      : model_type_(std::move(model_type)),
        about_(std::move(about)),
        architectures_(split_words(architectures)),
        fields_(split_words(fields)),
        nullable_(split_words(nullable)) {}
  virtual ~Family() = default;

  const std::string& model_type() const { return model_type_; }
  const std::string& about() const { return about_; }
  const std::vector<std::string>& architectures() const { return architectures_; }
  const std::vector<std::string>& fields() const { return fields_; }
  const std::vector<std::string>& nullable() const { return nullable_; }

  /// Reads and checks the family's fields, and fills the positions and the network.
  /// Throws InputError for a field that changes the mathematics and is not built.
  virtual void read(const ConfigFields& fields, ModelConfig& config) const = 0;
  /// Returns what a network of `read` consists of.
  virtual ModelDescription describe(const Network& network) const {
    return families::describe(network);
  }

 private:
  std::string model_type_, about_;
  std::vector<std::string> architectures_, fields_, nullable_;
};

const std::vector<const Family*>& all_families();
/// Returns the fields of config.json that are read of a model of the family, with those
/// that are read of every model.
std::vector<std::string> fields_read(const Family& family);
/// Returns the family, or null for a type that is not known.
const Family* find_family(std::string_view model_type);

}  // namespace longhaul::families
