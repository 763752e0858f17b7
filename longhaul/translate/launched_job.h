#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/translate/draft.h"
#include "longhaul/translate/flags_source.h"

namespace longhaul::translate {

/// A value of the other system, or that it is not known, and where that is from.
template <class T>
struct Known {
  std::optional<T> value = {};
  std::string from = {};  ///< "--lr", or "their default"; where unknown, why
  bool given = false;     ///< named by the user, not a default
};

/// What the rules of a system work with: the settings that were said, and the draft.
/// Readers take the last one of several equal names, as the other systems do, and throw
/// InputError where a text is no value of their type.
class Job {
 public:
  Job(const Source& source, Draft& draft) : source_(source), draft_(draft) {}

  const Source& source() const { return source_; }
  Draft& draft() const { return draft_; }

  /// Whether a rule asked for settings of this name.
  bool was_read(const std::string& name) const { return read_.contains(name); }
  /// Notes a setting, where it was given, as not carried over.
  void leave(const std::string& name, const std::string& why) const;
  bool was_left(const std::string& name) const { return left_.contains(name); }

  /// The last setting of this name; nullptr where it is absent or null.
  const Said* find(const std::string& name) const;
  /// Every setting of this name that is not null, in order.
  std::vector<const Said*> all(const std::string& name) const;
  /// The setting of the first of several names that is given, or nullptr.
  const Said* find_any(const std::vector<std::string>& names) const;
  /// The last variable of this name in front of the command, or nullptr.
  const Said* variable_in_environment(const std::string& name) const;

  /// The setting as a whole number, a number, a truth value or a text; `otherwise` is the
  /// other system's default, which is not known where something hidden may hold the flag.
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

  /// Puts `per_replica` sequences times the replicas as batch.global_size; asks for the
  /// value where one of the two is not known.
  void put_global_size(const Known<int64_t>& per_replica) const;
  /// The same for micro batches of so many sequences, times so many of them. The words
  /// are the names of the two settings; without `steps_word` the first names their
  /// product.
  void put_global_size(const Known<int64_t>& micro, std::string_view micro_word,
                       const Known<int64_t>& steps, std::string_view steps_word) const;
  /// Puts optimizer.betas: the other system's defaults, or the settings of two names with
  /// these defaults.
  void put_betas(double beta1, double beta2) const;
  void put_betas(const std::string& name1, const std::string& name2, double beta1,
                 double beta2) const;
  /// Puts the setting, or the other system's default, as a field of config.json; nothing
  /// where there is neither.
  void override_whole(const std::string& name, const std::string& field,
                      std::optional<int64_t> otherwise = {}) const;
  void override_real(const std::string& name, const std::string& field,
                     std::optional<double> otherwise = {}) const;

 private:
  const Source& source_;
  Draft& draft_;
  mutable std::set<std::string> read_;  ///< names that a rule asked for
  mutable std::set<std::string> left_;
};

/// The reason why a value that only a shell knows is asked for.
std::string not_looked_up(const Said& said);

/// A text of a setting as a whole number, a number, or a truth value. Throws InputError
/// where it is none.
int64_t whole_of(const Said& said, const std::string& text);
double real_of(const Said& said, const std::string& text);
bool truth_of(const Said& said);

/// A value as a key's type wants it: "integer", "number", "boolean", "path"...
config::Value typed(const Said& said, const std::string& type);

}  // namespace longhaul::translate
