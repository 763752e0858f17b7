#pragma once

#include "longhaul/config/codec.h"

// Codecs of settings that are neither plain values nor enums.

namespace longhaul::config {

/// Reads and writes "world", "node" or a number of ranks.
template <>
struct Codec<ShardGroup> {
  static std::string type() { return "\"world\" | \"node\" | integer"; }
  static void read(const Value& value, const std::string& name, ShardGroup& out);
  static Value write(const ShardGroup& value);
};

/// Reads and writes "latest", "never", a step or a path.
template <>
struct Codec<ResumeFrom> {
  static std::string type() { return "\"latest\" | \"never\" | integer | path"; }
  static void read(const Value& value, const std::string& name, ResumeFrom& out);
  static Value write(const ResumeFrom& value);
};

/// Reads and writes a path or an array of paths.
template <>
struct Codec<DataPaths> {
  static std::string type() { return "path | array of paths"; }
  static void read(const Value& value, const std::string& name, DataPaths& out);
  static Value write(const DataPaths& value);
};

/// Reads and writes a name or an array of names.
template <>
struct Codec<ModulePatterns> {
  static std::string type() { return "string | array of strings"; }
  static void read(const Value& value, const std::string& name, ModulePatterns& out);
  static Value write(const ModulePatterns& value);
};

/// Reads a date or a date-time, as TOML's own or as text, and writes it as text of UTC.
template <>
struct Codec<UtcTime> {
  static std::string type() { return "date | date-time"; }
  static void read(const Value& value, const std::string& name, UtcTime& out);
  static Value write(const UtcTime& value);
};

/// Reads and writes a table of fields of config.json.
template <>
struct Codec<std::vector<ModelOverride>> {
  static std::string type() { return "table"; }
  static void read(const Value& value, const std::string& name,
                   std::vector<ModelOverride>& out);
  static Value write(const std::vector<ModelOverride>& value);
};

}  // namespace longhaul::config
