#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/config/run_config.h"

namespace longhaul::checkpoint {

/// How a run goes on from the checkpoint of another program.
enum class Way {
  Checkpoint,  ///< `longhaul import --format checkpoint`: weights and moments
  Weights,     ///< `longhaul import`: weights alone
  AsItIs,      ///< init.weights reads its weights in place
  OwnScript,   ///< its own zero_to_fp32.py first, then `longhaul import`
  Converter,   ///< a converter of that program, since `longhaul import` cannot read it
  Unfinished,  ///< it was being saved, and has no file `done`
};

/// A checkpoint that another program saved.
struct ForeignCheckpoint {
  std::string writer;  ///< the program, in words
  Way way = Way::Checkpoint;
  fs::path path;  ///< the directory or file that is read to go on from it
  fs::path dir;   ///< the directory in which it was found
};

/// Returns the number at the end of a checkpoint's name: of step_100, of
/// llama_v2-100steps and of ckpt_100.pt.
std::optional<int64_t> step_in_name(const std::string& name);

/// Returns the checkpoint of another program at `path`: the file or directory itself, or
/// the newest whose save has ended among those that lie directly in it. Where `step` is
/// given, only one of that step is returned. Names of files alone tell what it is, no
/// file is read. A directory that cannot be listed has none.
std::optional<ForeignCheckpoint> find_foreign(const fs::path& path,
                                              std::optional<int64_t> step = {});

/// Says which program has saved a checkpoint, and what to type to go on from it. `model`
/// is the model's Hugging Face directory.
std::string foreign_advice(const ForeignCheckpoint& found,
                           const fs::path& model = "MODEL");

/// Throws InputError, with foreign_advice(), where checkpoint.resume names a checkpoint
/// of another program. Throws it as well on the first start of a run where checkpoint.dir
/// has no checkpoint of this program, and checkpoint.dir or run.dir has one of another
/// program. Does not throw where init.weights names that directory, or where
/// checkpoint.resume is "never".
void refuse_foreign(const RunConfig& config);

/// Throws as refuse_foreign() does, before a start has looked for checkpoints. Does
/// nothing for a run that has checkpoints of its own or a mirror: which checkpoint it
/// takes is known only later.
void refuse_foreign_start(const RunConfig& config);

}  // namespace longhaul::checkpoint
