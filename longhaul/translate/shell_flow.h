#pragma once

#include <set>
#include <string>
#include <vector>

#include "longhaul/translate/shell_conditions.h"
#include "longhaul/translate/shell_variables.h"

namespace longhaul::translate {

/// What stands around the commands of a text: conditions, loops, groups. Says which
/// commands a shell may run, and keeps the values of each branch apart.
class ShellFlow {
 public:
  enum class Kind { If, Case, Loop, Function, Group, Subshell, AndOr };

  ShellFlow(ShellVariables& variables, const std::string& name)
      : variables_(variables), name_(name) {}

  /// Begins a construct. Throws InputError if too many constructs lie in one another.
  void open(Kind kind);
  /// Ends the part before, and begins a part of the innermost construct. The part is not
  /// run if its condition does not hold, or if an earlier part is certainly run. `shown`
  /// is the condition for messages.
  void begin_part(Truth condition, const std::string& shown);
  /// Ends the part of the innermost construct and begins the condition of the next.
  void end_part();
  /// Ends the innermost construct.
  void close();

  bool empty() const { return frames_.empty(); }
  size_t depth() const { return frames_.size(); }
  /// Returns whether the innermost construct, or one around, is of a kind.
  bool is(Kind kind) const { return !frames_.empty() && frames_.back().kind == kind; }
  bool around(Kind kind) const;
  /// Returns whether the commands that follow are not run.
  bool dead() const { return !frames_.empty() && frames_.back().dead; }
  /// Returns whether the commands that follow stand in a loop, or depend on a condition
  /// that the text does not decide.
  bool in_loop() const { return inside(true); }
  bool uncertain() const { return inside(false); }

  /// Notes that the script ends in this part. Since the script is taken to train, it does
  /// not run this part, and the part's condition does not hold.
  void exits();
  /// Notes a variable that a part which is not run would set.
  void touch(const std::string& name);
  /// Notes the variables that the conditions of the innermost construct take as unset.
  void depend(const std::set<std::string>& unset);
  /// Returns the variables that the conditions around the commands that follow take as
  /// unset.
  std::set<std::string> unset() const;

 private:
  struct Frame {
    Kind kind = Kind::Group;
    bool outer_dead = false;
    bool dead = false;
    bool in_part = false;
    bool exits = false;
    bool undecided = false;
    Truth taken = Truth::No;  ///< whether an earlier part is run
    Truth taken_before = Truth::No;
    std::string shown = {};
    std::vector<ShellVariables::Branch> branches = {};
    std::set<std::string> touched = {};
    std::set<std::string> unset = {};
  };

  bool inside(bool loop) const;

  ShellVariables& variables_;
  const std::string& name_;
  std::vector<Frame> frames_;
};

}  // namespace longhaul::translate
