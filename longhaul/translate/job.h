#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/translate/draft.h"
#include "longhaul/translate/source.h"

namespace longhaul::translate {

/// A value of theirs, or that it is not known, and what says it.
template <class T>
struct Known {
  std::optional<T> value = {};
  std::string from = {};  ///< "--lr", or "their default"; where unknown, why
  bool given = false;     ///< named by the user, not a default
};

/// What the rules of a system work with. Readers take the last one of several equal
/// names, as the other systems do, and fail with InputError where a text is no such
/// value.
class Job {
 public:
  Job(const Source& source, Draft& draft) : source_(source), draft_(draft) {}

  const Source& source() const { return source_; }
  Draft& draft() const { return draft_; }

  /// nullptr where it is absent or null.
  const Said* find(const std::string& name) const;
  std::vector<const Said*> all(const std::string& name) const;
  /// The first of several names that is given.
  const Said* find_any(const std::vector<std::string>& names) const;
  const Said* variable_in_environment(const std::string& name) const;

  Known<int64_t> whole(const std::string& name,
                       std::optional<int64_t> otherwise = {}) const;
  Known<double> real(const std::string& name, std::optional<double> otherwise = {}) const;
  Known<bool> on(const std::string& name, std::optional<bool> otherwise = {}) const;
  Known<std::string> text(const std::string& name,
                          std::optional<std::string> otherwise = {}) const;

  /// Puts a value that is known, asks for one that was given as a variable, and does
  /// nothing where there is neither.
  void put(const std::string& key, const Known<int64_t>& number) const;
  void put(const std::string& key, const Known<double>& number) const;
  void put(const std::string& key, const Known<bool>& on) const;
  void put(const std::string& key, const Known<std::string>& text) const;

  /// Ranks that hold different data: those of the world over tp * pp * cp of the draft.
  Known<int64_t> replicas() const;

  /// batch.global_size = `per_replica` sequences times the replicas; else asks for it.
  void put_global_size(const Known<int64_t>& per_replica) const;
  void put_betas(double beta1, double beta2) const;
  void put_betas(const std::string& name1, const std::string& name2, double beta1,
                 double beta2) const;
  /// One field of config.json.
  void override_whole(const std::string& name, const std::string& field) const;
  void override_real(const std::string& name, const std::string& field) const;

 private:
  const Source& source_;
  Draft& draft_;
};

/// What is said as a number; InputError where it is none.
int64_t whole_of(const Said& said, const std::string& text);
double real_of(const Said& said, const std::string& text);
bool truth_of(const Said& said);

/// A value as a key's type wants it: "integer", "number", "boolean", "path"...
config::Value typed(const Said& said, const std::string& type);

}  // namespace longhaul::translate
