#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace longhaul::apps {

/// Has the options and arguments of all verbs refuse, before any verb begins, a path that
/// only a shell would have understood, so that none becomes a directory named "~". They
/// also refuse an address if the verb neither reads nor writes by address, and an output
/// that is also another output or an input of the verb.
void refuse_wrong_paths(CLI::App& program);

/// Returns what is wrong with an output that the command line of a verb names, if another
/// process will run that verb ("submit -- data split ..."). Returns an empty text if
/// nothing is wrong. The words begin with the verb.
std::string problem_of_outputs(std::span<const std::string> words);

/// Returns the message about the first word that contains an address with a secret,
/// whatever its verb and option; an empty text if no word does. The message repeats no
/// secret.
std::string problem_of_secrets(std::span<const std::string> words);

}  // namespace longhaul::apps
