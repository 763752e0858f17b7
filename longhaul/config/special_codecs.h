#pragma once

#include "longhaul/config/codec.h"

// Codecs of settings that are neither plain values nor enums.

namespace longhaul::config {

/// "world" | "node" | a number of ranks.
template <>
struct Codec<ShardGroup> {
  static std::string type() { return "\"world\" | \"node\" | integer"; }
  static void read(const Value& value, const std::string& name, ShardGroup& out);
  static Value write(const ShardGroup& value);
};

/// "latest" | "never" | a step | a path.
template <>
struct Codec<ResumeFrom> {
  static std::string type() { return "\"latest\" | \"never\" | integer | path"; }
  static void read(const Value& value, const std::string& name, ResumeFrom& out);
  static Value write(const ResumeFrom& value);
};

/// A path, or an array of them.
template <>
struct Codec<DataPaths> {
  static std::string type() { return "path | array of paths"; }
  static void read(const Value& value, const std::string& name, DataPaths& out);
  static Value write(const DataPaths& value);
};

/// A table of config.json's fields.
template <>
struct Codec<std::vector<ModelOverride>> {
  static std::string type() { return "table"; }
  static void read(const Value& value, const std::string& name,
                   std::vector<ModelOverride>& out);
  static Value write(const std::vector<ModelOverride>& value);
};

}  // namespace longhaul::config
