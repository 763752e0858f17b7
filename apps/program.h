#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "apps/verbs.h"

namespace longhaul::apps {

/// Adds the verbs, whose callbacks do the work and set the outcome, and options such as
/// --version.
using AddVerbs = std::function<void(CLI::App& program, Outcome& outcome)>;

/// Reads the command line, runs the verb in it and returns the exit code. Errors are said
/// on standard error.
int run_program(int argc, char** argv, const AddVerbs& add_verbs);

/// Adds --set, whose words replace settings of the run's file. `more` ends its help.
CLI::Option* add_set_option(CLI::App& verb, std::vector<std::string>& sets,
                            const std::string& more = "");

inline constexpr const char* kRehearse = "--rehearse";
/// Adds --rehearse and --no-rehearse. `word` gets the flag that was given; it stays empty
/// without one.
void add_rehearse_flags(CLI::App& verb, std::string& word);

/// Writes "longhaul: warning: LINE" to standard error.
void say_warning(const std::string& line);
/// Writes "longhaul: error: LINE" to standard error.
void say_error(const std::string& line);

}  // namespace longhaul::apps
