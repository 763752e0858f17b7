#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::apps {

// A directory of weights with a passport has three files more:
//   passport.json      what the weights are, from what they come and how they behave
//   passport.json.sig  its signature, as ssh-keygen makes it; only where it is signed
//   check_passport.py  compares the passport with whoever uses the weights
inline constexpr const char* kPassportFile = "passport.json";
inline constexpr const char* kCheckerFile = "check_passport.py";
inline constexpr int kPassportVersion = 1;

/// Returns {name: {"bytes", "sha256"}} of all files in a directory and below it, without
/// the passport and its signature. The files are read by several threads.
Json hashes_of_files(const fs::path& dir);
/// Returns the same of these files of the directory.
Json hashes_of_files(const fs::path& dir, const std::vector<std::string>& names);

/// Throws ConfigError unless ssh-keygen can sign with the key in this file: a private
/// key without a passphrase, or a public key whose private key ssh-agent holds.
void check_signing_key(const fs::path& key);
/// Writes the signature of a file beside it, as FILE.sig. Throws ConfigError if
/// ssh-keygen does not sign.
void sign_file(const fs::path& file, const fs::path& key);

/// What verify_passport has found in a directory whose passport fits it.
struct VerifiedPassport {
  uint64_t bytes = 0;              ///< that were read
  std::vector<std::string> lines;  ///< for people, such as who has signed
};
/// Compares the files of a directory with its passport, and the passport with its
/// signature. `signers` is a file of allowed signers (ssh-keygen(1)); if it is given, one
/// of them must have signed. Throws InputError that names what differs: files that are
/// changed or missing, files that were added and that a model would be loaded from, and a
/// wrong signature.
VerifiedPassport verify_passport(const fs::path& dir, const fs::path& signers);

}  // namespace longhaul::apps
