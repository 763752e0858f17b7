#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>

#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/reader.h"
#include "longhaul/data/bert/inspect_bert.h"
#include "longhaul/data/store/inspect_store.h"

namespace longhaul::apps {
namespace {

void run_verify(const fs::path& path) {
  const auto start = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  std::string what;
  if (!fs::exists(path)) throw InputError("verify", missing_path(path));
  if (!fs::is_directory(path)) {
    throw InputError("verify", path.string() +
                                   ": is a file; give the directory of a checkpoint, a "
                                   "run or a store");
  }
  if (const auto step = checkpoint::find_checkpoint(path)) {
    const auto reader = checkpoint::CheckpointReader::open(*step);
    bytes = reader.verify();
    what = fmt::format("checkpoint of step {} ({})", reader.step(), step->string());
  } else if (data::describe_data(path)) {
    bytes = data::verify_store(path);
    what = fmt::format("token store {}", path.string());
  } else if (data::describe_bert(path)) {
    bytes = data::verify_bert(path);
    what = fmt::format("BERT examples {}", path.string());
  } else {
    throw InputError("verify", path.string() +
                                   ": neither a checkpoint, a run with a valid "
                                   "one, a token store, nor BERT examples; nothing else "
                                   "has hashes (`longhaul inspect` looks whether a "
                                   "model's directory is complete)");
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: {} read, every hash is right ({:.1f} s)\n", what,
             human_bytes(static_cast<double>(bytes)), seconds);
}

}  // namespace

void add_verify(CLI::App& program, Outcome&) {
  const auto path = std::make_shared<std::string>();
  CLI::App* verb = program.add_subcommand(
      "verify",
      "Reads a checkpoint, token store or BERT examples again and checks every hash");
  verb->add_option("dir", *path, "a checkpoint, a run (its newest valid one) or a store")
      ->required();
  verb->footer("Example: longhaul verify runs/cpt/checkpoints/step_00000500");
  verb->callback([path] { run_verify(*path); });
}

}  // namespace longhaul::apps
