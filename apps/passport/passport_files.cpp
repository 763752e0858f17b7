#include "apps/passport/passport_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/format/side_files.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::apps {
namespace {

constexpr uint64_t kReadBytes = uint64_t{1} << 20;
constexpr size_t kMostNamed = 8;
constexpr uint64_t kMostPassportBytes = uint64_t{1} << 26;
/// What a signature is for, so that none of another purpose passes.
constexpr const char* kNamespace = "longhaul-passport";
constexpr const char* kSsh = "ssh-keygen";

fs::path signature_of(const fs::path& file) { return file.string() + ".sig"; }

/// Returns {"bytes", "sha256"} of a file.
Json hash_of_file(const fs::path& path) {
  const File file = File::open_read(path);
  const uint64_t size = file.size();
  crypto_hash_sha256_state state;
  ::crypto_hash_sha256_init(&state);
  std::vector<std::byte> buffer(std::min(size, kReadBytes));
  for (uint64_t at = 0; at < size; at += kReadBytes) {
    const std::span<std::byte> part(buffer.data(), std::min(kReadBytes, size - at));
    file.read_at(at, part);
    ::crypto_hash_sha256_update(
        &state, reinterpret_cast<const unsigned char*>(part.data()), part.size());
  }
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  ::crypto_hash_sha256_final(&state, digest.data());
  return {{"bytes", size}, {"sha256", fmt::format("{:02x}", fmt::join(digest, ""))}};
}

std::vector<std::string> names_below(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!fs::is_directory(entry.symlink_status())) {  // a link has a name as a file has
      names.push_back(entry.path().lexically_relative(dir).generic_string());
    }
  }
  const fs::path passport(kPassportFile);
  std::erase(names, passport.string());
  std::erase(names, signature_of(passport).string());
  std::ranges::sort(names);
  return names;
}

/// Returns whether a program that loads the model may read a file of this name.
bool may_be_loaded(const std::string& name) {
  constexpr std::array<std::string_view, 6> kEndings = {".safetensors", ".bin",  ".pt",
                                                        ".pth",         ".gguf", ".py"};
  return name == "config.json" || name == "generation_config.json" ||
         name == "additional_chat_templates" ||  // a link to such a folder
         name.ends_with(".index.json") || format::is_tokenizer_side_file(name) ||
         std::ranges::any_of(kEndings, [&](auto end) { return name.ends_with(end); });
}

/// Makes a directory that no other user can write to or foretell.
fs::path private_directory() {
  std::string path = (fs::temp_directory_path() / "longhaul-sign-XXXXXX").string();
  if (::mkdtemp(path.data()) != nullptr) return path;
  fail_temporary(
      "export",
      "{}: no directory can be made there to try the key in: {}; make room, or "
      "set TMPDIR to a directory that can be written",
      fs::temp_directory_path().string(), std::strerror(errno));
}

cluster::CommandResult run_ssh(std::vector<std::string> words,
                               const fs::path& input = {}) {
  words.insert(words.begin(), kSsh);
  cluster::CommandOptions options;
  options.input = input.string();
  // A key with a passphrase makes ssh-keygen end, instead of asking a terminal.
  options.environment = {{"SSH_ASKPASS", "/bin/false"}, {"SSH_ASKPASS_REQUIRE", "force"}};
  return cluster::run_command(words, options);
}

/// Returns what a command said last.
std::string last_words(const cluster::CommandResult& result) {
  const std::string_view errors = trimmed(result.errors);
  const std::string_view said = errors.empty() ? trimmed(result.output) : errors;
  return std::string(said.substr(said.rfind('\n') + 1));
}

/// Returns who has signed a file, as ssh-keygen says it, or throws InputError.
std::string signer_of(const fs::path& file, const fs::path& signers) {
  cluster::require_program(kSsh, "verify", "install OpenSSH's client");
  const std::string signature = signature_of(file).string();
  std::vector<std::string> words = {"-Y", "check-novalidate", "-n", kNamespace,
                                    "-s", signature};
  if (!signers.empty()) {
    const auto found =
        run_ssh({"-Y", "find-principals", "-s", signature, "-f", signers.string()});
    if (!found.ok()) {
      fail_input("verify", "signature: {} names no signer of {}: {}", signers.string(),
                 file.string(), last_words(found));
    }
    const std::string name(lines_of(trimmed(found.output)).front());
    words = {"-Y",      "verify", "-n", kNamespace, "-s",
             signature, "-I",     name, "-f",       signers.string()};
  }
  const auto result = run_ssh(words, file);
  if (!result.ok()) {
    fail_input("verify", "signature: {} is none of {}: {}", signature, file.string(),
               last_words(result));
  }
  return std::string(trimmed(result.output));
}

/// Returns what differs from a passport's list of files, and adds the bytes that were
/// read.
std::vector<std::string> differing_files(const fs::path& dir, const Json& files,
                                         uint64_t& bytes) {
  const std::vector<std::string> there = names_below(dir);
  std::vector<std::string> known, problems;
  for (const auto& [name, unused] : files.items()) {
    join_inside(dir, name, "verify");
    if (std::ranges::binary_search(there, name)) {
      known.push_back(name);
    } else {
      problems.push_back(name + " is missing");
    }
  }
  const Json found = hashes_of_files(dir, known);
  for (const std::string& name : known) {
    const Json& now = found.at(name);
    bytes += now.at("bytes").get<uint64_t>();
    if (now != files.at(name)) {
      problems.push_back(fmt::format("{} has another sha256 ({})", name,
                                     now.at("sha256").get<std::string>()));
    }
  }
  for (const std::string& name : there) {
    if (!files.contains(name) && may_be_loaded(name)) {
      problems.push_back(name + " was added");
    }
  }
  return problems;
}

}  // namespace

Json hashes_of_files(const fs::path& dir) {
  return hashes_of_files(dir, names_below(dir));
}

Json hashes_of_files(const fs::path& dir, const std::vector<std::string>& names) {
  std::vector<Json> hashes(names.size());
  system::share_among_threads(std::ssize(names), system::threads_of(0), [&](int64_t i) {
    const auto place = static_cast<size_t>(i);
    hashes[place] = hash_of_file(dir / names[place]);
  });
  Json all = Json::object();
  for (size_t i = 0; i < names.size(); ++i) all[names[i]] = std::move(hashes[i]);
  return all;
}

void check_signing_key(const fs::path& key) {
  const ScratchPath scratch(private_directory());
  const fs::path file = scratch.path() / kPassportFile;
  write_text_atomic(file, "{}\n");
  sign_file(file, key);
}

void sign_file(const fs::path& file, const fs::path& key) {
  if (!cluster::has_program(kSsh)) {
    fail_config("export",
                "there is no {} in PATH, which --sign needs; install OpenSSH's "
                "client",
                kSsh);
  }
  const auto result = run_ssh(
      {"-Y", "sign", "-n", kNamespace, "-f", fs::absolute(key).string(), file.string()});
  if (result.ok() && is_seen_file(signature_of(file))) return;
  fail_config("export",
              "ssh-keygen does not sign with {}: {}; give a private key without a "
              "passphrase, or the public key of one that ssh-agent holds",
              key.string(), last_words(result));
}

VerifiedPassport verify_passport(const fs::path& dir, const fs::path& signers) {
  const fs::path path = dir / kPassportFile;
  const Json passport = read_json(path, kMostPassportBytes);
  const auto version = passport.is_object() ? passport.value("passport", Json()) : Json();
  if (version != kPassportVersion || !passport.value("files", Json()).is_object()) {
    fail_input("verify",
               "{} is no passport of version {}, the one that this program reads",
               path.string(), kPassportVersion);
  }
  VerifiedPassport verified;
  const Json& files = passport.at("files");
  const auto problems = differing_files(dir, files, verified.bytes);
  if (!problems.empty()) {
    fail_input("verify", "{} is not what its passport says: {}", dir.string(),
               fmt::join(problems, "; "));
  }
  std::vector<std::string> others = names_below(dir);
  std::erase_if(others, [&](const std::string& name) { return files.contains(name); });
  if (!others.empty()) {
    verified.lines.push_back("not in the passport: " + listed(others, kMostNamed));
  }
  if (is_seen_file(signature_of(path))) {
    verified.lines.push_back(signer_of(path, signers));
    if (signers.empty()) {
      verified.lines.emplace_back(
          "whose key that is was not checked; --signers FILE checks it");
    }
  } else if (!signers.empty()) {
    fail_input("verify", "signature: {} is missing, so nobody has signed the passport",
               signature_of(path).string());
  } else {
    verified.lines.emplace_back("the passport is not signed");
  }
  return verified;
}

}  // namespace longhaul::apps
