#pragma once

#include <memory>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/data/tasks/task_file.h"
#include "longhaul/data/tasks/task_rows.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::infer {

/// A task of lm-eval, ready for a model.
struct TaskSet {
  std::string name;
  data::TaskFile task;  ///< rank 0's; the other ranks have an empty one
  std::shared_ptr<const data::TaskRows> rows;
  std::string words;  ///< rank 0's: what was read, and how, for logs
};

/// How a task is read.
struct TaskReading {
  /// The model's tokenizer; null: it has none, which is refused. Only rank 0's is used.
  const tokenizer::Tokenizer* tokenizer = nullptr;
  int64_t seq_len = 0;     ///< lm-eval's max_length
  int64_t vocab_size = 0;  ///< of the model
  bool is_causal = true;   ///< another model is refused
};

/// Reads a task's file of samples on rank 0 and gives all ranks its rows. Throws
/// InputError, the same on every rank, as read_task_file and encode_task do, and for a
/// model without a tokenizer or that sees later tokens. Collective.
TaskSet open_task(comm::Communicator& world, std::string name, const fs::path& path,
                  const TaskReading& how);

/// Returns the name of a task by its file: "arc_easy" of
/// samples_arc_easy_2026-01-31T10-20-30.123456.jsonl.
std::string task_name_of(const fs::path& path);

}  // namespace longhaul::infer
