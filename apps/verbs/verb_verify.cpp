#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "apps/objects/local_input.h"
#include "apps/passport/passport_files.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/examine/verify.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/data/bert/inspect_bert.h"
#include "longhaul/data/store/inspect_store.h"
#include "longhaul/run/files.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

/// Verifies all checkpoints of a run. Returns the bytes that were read; throws when any
/// of them is broken, after all have been looked at.
uint64_t verify_whole_run(const fs::path& path, const objects::Access& objects) {
  const auto verdict = checkpoint::verify_run(path, [&](const std::string& line) {
    fmt::print("{}\n", system::printable(objects.with_addresses(line)));
    std::fflush(stdout);
  });
  const auto bad = std::ssize(verdict.broken) + std::ssize(verdict.unasked);
  if (bad == 0 && verdict.whole > 0) return verdict.bytes;
  if (bad == 0) throw InputError("verify", path.string() + ": there is no checkpoint");
  const std::string& first =
      verdict.broken.empty() ? verdict.unasked.front() : verdict.broken.front();
  const std::string words =
      fmt::format("{}: {} of {} {}: {}", path.string(), bad,
                  counted(bad + verdict.whole, "checkpoint"),
                  bad == 1 ? "is not whole" : "are not whole", first);
  if (verdict.broken.empty()) throw TemporaryError("verify", words);
  throw InputError("verify", words);
}

void run_verify(const fs::path& path, const fs::path& signers,
                const objects::Access& objects) {
  const system::Stopwatch watch;
  uint64_t bytes = 0;
  std::string what;
  if (!fs::exists(path)) throw InputError("verify", missing_path(path));
  if (!fs::is_directory(path)) {
    throw InputError("verify", path.string() +
                                   ": is a file; give the directory of a checkpoint, a "
                                   "run or a store");
  }
  if (fs::exists(path / kPassportFile)) {
    const VerifiedPassport verified = verify_passport(path, signers);
    for (const std::string& line : verified.lines) {
      fmt::print("{}\n", system::printable(line));
    }
    bytes = verified.bytes;
    what = fmt::format("the files of the passport of {}", path.string());
  } else if (!signers.empty()) {
    fail_input("verify", "{} has no {}, of which --signers would check the signature",
               path.string(), kPassportFile);
  } else if (fs::exists(path / run::kManifestFile) || run::step_of(path)) {
    const auto reader = checkpoint::CheckpointReader::open(path);
    bytes = reader.verify();
    what = fmt::format("checkpoint of step {} ({})", reader.step(), path.string());
  } else if (data::describe_data(path)) {
    bytes = data::verify_store(path);
    what = fmt::format("token store {}", path.string());
  } else if (data::describe_bert(path)) {
    bytes = data::verify_bert(path);
    what = fmt::format("BERT examples {}", path.string());
  } else if (checkpoint::may_be_run(path)) {
    bytes = verify_whole_run(path, objects);
    what = fmt::format("all checkpoints of {}", path.string());
  } else {
    throw InputError(
        "verify",
        path.string() +
            ": neither a checkpoint, a run, a token store, BERT "
            "examples, nor an export with a passport; nothing else has hashes (`longhaul "
            "inspect` looks whether a model's directory is "
            "complete)");
  }
  fmt::print("{}: {} read, every hash is right ({:.1f} s)\n",
             objects.with_addresses(what), human_bytes(bytes), watch.seconds());
}

}  // namespace

void add_verify(CLI::App& program, Outcome& outcome) {
  const auto path = std::make_shared<std::string>();
  const auto signers = std::make_shared<std::string>();
  CLI::App* verb = program.add_subcommand(
      "verify",
      "Reads a checkpoint, all of a run, a store or an export with a passport again and "
      "checks every hash");
  verb->add_option(
          "dir", *path,
          "a checkpoint, a run (all of its checkpoints), a store, or a directory with "
          "a passport")
      ->required();
  verb->add_option("--signers", *signers,
                   "a file of allowed signers (ssh-keygen): one of them must have signed "
                   "the passport");
  verb->footer(
      "Reads everything first. Then it ends with 78 where anything is broken, and with "
      "75 where something could not be read this time.\n"
      "Examples:\n"
      "  longhaul verify runs/cpt\n"
      "  longhaul verify runs/cpt/checkpoints/step_00000500");
  verb->callback([path, signers, &outcome] {
    const LocalCheckpoint named(*path, outcome.objects, /*prove_anew=*/true);
    run_verify(named.path(), *signers, outcome.objects);
  });
}

}  // namespace longhaul::apps
