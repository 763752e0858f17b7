#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhaul/translate/draft.h"
#include "longhaul/translate/flags_source.h"

namespace longhaul::translate {

/// A value of the other system, which may be unknown, and the source of the value.
template <class T>
struct Known {
  std::optional<T> value = {};
  std::string from = {};  ///< "--lr", "their default", or why the value is unknown
  bool given = false;     ///< named by the user, not a default
  T value_or(T otherwise) const { return value.value_or(std::move(otherwise)); }
};

/// The settings that were given, and the draft that the rules of a system fill. If a name
/// was set several times, the functions below take the last setting, as the other systems
/// do. They throw InputError if a text is no value of their type.
class Job {
 public:
  Job(const Source& source, Draft& draft) : source_(source), draft_(draft) {}

  const Source& source() const { return source_; }
  Draft& draft() const { return draft_; }

  /// Returns whether a rule asked for settings of this name.
  bool was_read(const std::string& name) const { return read_.contains(name); }
  /// Notes a setting, if it was given, as not carried over.
  void leave(const std::string& name, const std::string& why) const;
  void leave(std::initializer_list<const char*> names, const std::string& why) const {
    for (const char* name : names) leave(name, why);
  }
  /// Notes a setting, if it was given, as not carried over. The mark CAUTION says that
  /// the run trains differently without the setting.
  void caution(const std::string& name, const std::string& why) const {
    leave_marked(name, why, "CAUTION ");
  }
  bool was_left(const std::string& name) const { return left_.contains(name); }

  /// Returns the last setting of this name, or nullptr if it is absent or null.
  const Said* find(const std::string& name) const;
  /// Returns every setting of this name that is not null, in order.
  std::vector<const Said*> all(const std::string& name) const;
  /// Returns the setting of the first of several names that is given, or nullptr.
  const Said* find_any(const std::vector<std::string>& names) const;

  /// Returns the setting as a whole number, a number, a truth value or a text.
  /// `otherwise` is the other system's default. The default counts as unknown if a hidden
  /// word, such as "${ARGS[@]}", may hold the flag.
  Known<int64_t> whole(const std::string& name,
                       std::optional<int64_t> otherwise = {}) const;
  Known<double> real(const std::string& name, std::optional<double> otherwise = {}) const;
  Known<bool> on(const std::string& name, std::optional<bool> otherwise = {}) const;
  Known<std::string> text(const std::string& name,
                          std::optional<std::string> otherwise = {}) const;

  /// Puts a known value, asks for a value that was given as a variable, and does nothing
  /// if there is neither.
  template <class T>
  void put(const std::string& key, const Known<T>& known) const {
    if (known.value && known.given) {
      draft_.put(key, *known.value, known.from);
    } else if (known.value) {
      draft_.put_default(key, *known.value, known.from);
    } else if (known.given) {
      draft_.fill(key, known.from);
    }
  }

  /// Asks for the value of a key if a setting is given. `what` follows the setting's
  /// words.
  void ask(const std::string& name, const std::string& key,
           const std::string& what) const;

  /// Returns the number of replicas: the ranks of the world over tp * pp * cp of the
  /// draft.
  Known<int64_t> replicas() const;

  /// Puts `per_replica` sequences times the replicas as batch.global_size, or asks for
  /// the value if one of the two is unknown.
  void put_global_size(const Known<int64_t>& per_replica) const;
  /// Puts batch.global_size for replicas that run `steps` micro batches of `micro`
  /// sequences. The words are the names of the two settings; without `steps_word` the
  /// first word names their product.
  void put_global_size(const Known<int64_t>& micro, std::string_view micro_word,
                       const Known<int64_t>& steps, std::string_view steps_word) const;
  /// Puts optimizer.betas: the other system's defaults, or the settings of two names with
  /// these defaults.
  void put_betas(double beta1, double beta2) const;
  void put_betas(const std::string& name1, const std::string& name2, double beta1,
                 double beta2) const;
  /// Puts log.tensorboard_dir, the first of several directories. A directory that only a
  /// shell knows is noted as not carried over, since the run has a directory of its own
  /// for this.
  void put_tensorboard(const std::string& name) const;
  /// Puts log.results if the user names a file for results.
  void put_results(const std::string& name, const char* form) const;
  /// Puts the setting, or the other system's default, as a field of config.json. Notes a
  /// setting with an unknown value as not carried over. Does nothing if there is neither
  /// setting nor default.
  void override_whole(const std::string& name, const std::string& field,
                      std::optional<int64_t> otherwise = {}) const;
  void override_real(const std::string& name, const std::string& field,
                     std::optional<double> otherwise = {}) const;

 private:
  void leave_marked(const std::string& name, const std::string& why,
                    const char* mark) const;

  const Source& source_;
  Draft& draft_;
  mutable std::set<std::string> read_;  ///< names that a rule asked for
  mutable std::set<std::string> left_;
};

/// Returns the reason why the draft asks for a value that only a shell knows.
std::string not_looked_up(const Said& said);

/// Returns the text of a setting as a whole number, a number or a truth value. Throws
/// InputError for any other text.
int64_t whole_of(const Said& said, const std::string& text);
double real_of(const Said& said, const std::string& text);
bool truth_of(const Said& said);

/// Returns a value of a key's type: "integer", "number", "boolean", "path"...
config::Value typed(const Said& said, const std::string& type);

}  // namespace longhaul::translate
