#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace longhaul::apps {

/// Has the options and arguments of all verbs refuse, before any verb begins, a path that
/// only a shell would have understood, so that none becomes a directory named "~". They
/// also refuse an address where the verb neither reads nor writes by address, and an
/// output that is another output, or what the verb reads.
void refuse_wrong_paths(CLI::App& program);

/// Returns what is wrong with an output that the words of a verb name, where another
/// process will run that verb ("submit -- data split ..."); empty where nothing is. The
/// words begin with the verb.
std::string problem_of_outputs(std::span<const std::string> words);

/// Returns the message about the first word that contains an address with a secret,
/// whatever its verb and option; empty where no word does. The message repeats no secret.
std::string problem_of_secrets(std::span<const std::string> words);

}  // namespace longhaul::apps
