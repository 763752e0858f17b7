#include "longhaul/infer/task_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"

namespace longhaul::infer {
namespace {

std::string words_of(const data::TaskFile& task, const data::TaskEncoding& made,
                     int64_t seq_len) {
  std::string words = counted(std::ssize(task.questions), "question");
  if (task.kind == data::TaskKind::MultipleChoice) {
    words += task.delimiter.empty()
                 ? ", choices without a delimiter"
                 : fmt::format(", {} of delimiter before each choice",
                               counted(std::ssize(task.delimiter), "character"));
  }
  if (made.cut > 0) {
    words += fmt::format("; {} of {} cut at the left to {} tokens", made.cut,
                         counted(made.tokens.requests, "request"), seq_len);
  }
  if (!task.left_out.empty()) {
    words += fmt::format("; not computed: {}", fmt::join(task.left_out, ", "));
  }
  return words;
}

}  // namespace

TaskSet open_task(comm::Communicator& world, std::string name, const fs::path& path,
                  const TaskReading& how) {
  TaskSet set;
  set.name = std::move(name);
  std::string bytes;
  const auto read = [&] {
    if (world.rank() > 0) return;
    if (!how.is_causal) {
      fail_input("tasks",
                 "{}: the model predicts masked tokens from both sides, and a task asks "
                 "for the tokens behind a context",
                 path.string());
    }
    if (how.tokenizer == nullptr) {
      fail_input("tasks",
                 "{}: no tokenizer.json and no tokenizer.model lies beside the weights "
                 "or the model's config; put one there",
                 path.string());
    }
    set.task = data::read_task_file(path);
    const data::TaskEncoding made =
        data::encode_task(set.task, *how.tokenizer, how.seq_len, how.vocab_size);
    set.words = words_of(set.task, made, how.seq_len);
    bytes = made.tokens.bytes();
  };
  comm::do_and_meet(world, read, {});
  set.rows = std::make_shared<const data::TaskRows>(
      data::TaskTokens::of(world.broadcast_string(bytes, 0)), how.seq_len,
      how.vocab_size);
  if (!set.words.empty()) set.words += "; " + set.rows->describe();
  return set;
}

std::string task_name_of(const fs::path& path) {
  constexpr std::string_view kBefore = "samples_";
  std::string name = path.stem().string();
  if (!name.starts_with(kBefore)) return name;
  name.erase(0, kBefore.size());
  const size_t date = name.rfind("_2");
  const bool dated = date != std::string::npos && date > 0 && name.size() > date + 11 &&
                     name[date + 5] == '-' && name[date + 11] == 'T';
  if (dated) name.resize(date);
  return name;
}

}  // namespace longhaul::infer
