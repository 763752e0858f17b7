#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "apps/pages/text_table.h"
#include "apps/program.h"
#include "apps/verbs.h"
#include "apps/why/replayed_step.h"
#include "apps/why/run_data.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/plain_text.h"

namespace longhaul::apps {
namespace {

constexpr int kExitOtherData = 1;

struct WhyCall {
  std::string run;
  int64_t step = 0;
  std::string document;
  bool loss = false;
  std::string out;
  bool keep = false;
  int64_t ranks = 0;
  int64_t lines = 40;
  bool json = false;
};

/// A document of a step.
struct DocumentRow {
  std::string source;
  data::DocumentPart part;  ///< the first of its parts in the step
  int64_t tokens = 0;
  int64_t seen = 0;
  DocumentLoss loss;
};

std::string hex(const std::optional<uint64_t>& hash) {
  return hash ? fmt::format("{:016x}", *hash) : "not recorded";
}

/// Puts the parts of each document together. With losses the largest comes first, else
/// documents are in the order of the step.
std::vector<DocumentRow> document_rows(const std::vector<StepPart>& parts,
                                       const std::vector<DocumentLoss>& losses) {
  using Key = std::tuple<std::string, std::string, int64_t>;
  std::map<Key, size_t> numbers;
  std::vector<DocumentRow> rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    const StepPart& one = parts[i];
    const auto [at, fresh] =
        numbers.try_emplace({one.source, one.part.store, one.part.document}, rows.size());
    if (fresh) rows.push_back({one.source, one.part, 0, one.seen, {}});
    DocumentRow& row = rows[at->second];
    row.tokens += one.part.tokens;
    row.seen = std::max(row.seen, one.seen);
    if (losses.empty()) continue;
    row.loss.sum += losses[i].sum;
    row.loss.targets += losses[i].targets;
  }
  if (losses.empty()) return rows;
  std::ranges::stable_sort(rows, [](const DocumentRow& a, const DocumentRow& b) {
    const auto rank = [](const DocumentRow& row) {
      return std::isnan(row.loss.sum) ? std::numeric_limits<double>::infinity()
                                      : row.loss.sum;
    };
    return rank(a) > rank(b);
  });
  return rows;
}

DocumentLoss sum_of(const std::vector<DocumentLoss>& losses) {
  DocumentLoss all;
  for (const DocumentLoss& one : losses) {
    all.sum += one.sum;
    all.targets += one.targets;
  }
  return all;
}

double per_target(const DocumentLoss& loss) {
  return loss.targets == 0 ? 0.0 : loss.sum / static_cast<double>(loss.targets);
}

/// Prints rows of cells below their head, numbers aligned to the right.
void print_cells(const std::vector<std::vector<std::string>>& rows,
                 std::vector<bool> right) {
  TextTable table{{}, std::move(right)};
  for (const auto& cells : rows) {
    auto& row = table.rows.emplace_back();
    for (const std::string& cell : cells)
      row.push_back(Pieces{Piece{monitor::plain_text(cell)}});
  }
  constexpr size_t kAnyWidth = 1'000'000;
  for (const std::string& line : table_lines(table, kAnyWidth, false)) {
    fmt::print("{}\n", line);
  }
}

void print_documents(const std::vector<DocumentRow>& rows, double loss, int64_t lines) {
  const bool ranked = std::ranges::any_of(
      rows, [](const DocumentRow& row) { return row.loss.targets > 0; });
  std::vector<std::vector<std::string>> cells = {
      {"tokens", "seen", "source", "file", "record"}};
  std::vector<bool> right = {true, true, false, false, true};
  if (ranked) {
    cells[0].insert(cells[0].begin(), {"share", "nats/target"});
    right.insert(right.begin(), {true, true});
  }
  const auto all = std::ssize(rows);
  const int64_t shown = lines == 0 ? all : std::min<int64_t>(all, lines);
  for (int64_t i = 0; i < shown; ++i) {
    const DocumentRow& row = rows[static_cast<size_t>(i)];
    auto& line = cells.emplace_back();
    if (ranked) {
      line = {fmt::format("{:.2f}%", 100.0 * row.loss.sum / loss),
              fmt::format("{:.3f}", per_target(row.loss))};
    }
    line.insert(line.end(), {grouped(row.tokens), grouped(row.seen), row.source,
                             row.part.file, std::to_string(row.part.record)});
  }
  print_cells(cells, std::move(right));
  if (shown < all) {
    fmt::print("... {} (--lines 0 prints all)\n", counted(all - shown, "more document"));
  }
}

/// Says in a sentence whether the step was trained again to the bit.
std::string replay_verdict(const ReplayedStep& replay, const run::StepRecord& record) {
  if (replay.first_different == 0) {
    return fmt::format(
        "trained again from step {}: loss, gradient norm and data of steps {} to {} are "
        "those of the record, to the last bit",
        replay.from, replay.from + 1, record.step);
  }
  return fmt::format(
      "trained again from step {}: the loss is {:.17g}, in the record {:.17g} (relative "
      "difference {:.3g}), and the gradient norm {:.17g}, in the record {:.17g}. The "
      "first step that differs is {}",
      replay.from, replay.loss, record.loss,
      std::abs(replay.loss - record.loss) / std::abs(record.loss), replay.grad_norm,
      record.grad_norm, replay.first_different);
}

/// Says in a sentence whether the documents' losses make up the loss of the step.
std::string sum_verdict(const DocumentLoss& all, double loss) {
  constexpr double kClose = 0.01;  // the rounding of bf16 stays below
  const double mean = per_target(all);
  const std::string text =
      fmt::format("the documents' losses come to {:.6g} nats a target", mean);
  const bool close = std::isfinite(mean)
                         ? std::abs(mean - loss) <= kClose * std::abs(loss)
                         : !std::isfinite(loss);
  if (close) return text + ", the loss of the step";
  return text + fmt::format(
                    ", and the loss of the step is {:.6g}: it has what no document has, "
                    "such as dropout or the losses of routers",
                    loss);
}

Json json_of(const std::vector<DocumentRow>& rows, double loss, bool ranked) {
  Json list = Json::array();
  for (const DocumentRow& row : rows) {
    Json one = {{"source", row.source},
                {"file", row.part.file},
                {"record", row.part.record},
                {"store", row.part.store},
                {"document", row.part.document},
                {"tokens", row.tokens},
                {"seen", row.seen}};
    if (ranked) {
      one["loss_sum"] = row.loss.sum;
      one["targets"] = row.loss.targets;
      one["share"] = row.loss.sum / loss;
    }
    list.push_back(std::move(one));
  }
  return list;
}

Json json_of(const std::vector<StepPart>& parts) {
  Json list = Json::array();
  for (const StepPart& one : parts) {
    list.push_back({{"sequence", one.sequence},
                    {"begin", one.part.begin},
                    {"tokens", one.part.tokens},
                    {"offset", one.part.offset},
                    {"source", one.source},
                    {"store", one.part.store},
                    {"document", one.part.document},
                    {"seen", one.seen}});
  }
  return list;
}

void print_notes(const RunData& data) {
  for (const std::string& note : data.notes()) say_warning(note);
}

int explain_step(const WhyCall& call, RunData& data) {
  const StepPlace step = data.find(call.step);
  const std::vector<StepPart> parts = data.parts(step);
  const uint64_t now = data.data_hash(step);
  const auto& recorded = step.record.data_hash;
  const bool same_data = !recorded || *recorded == now;
  print_notes(data);
  ReplayedStep replay;
  if (call.loss) {
    fs::path dir = call.out;
    if (dir.empty()) dir = fmt::format("why-step-{}", call.step);
    replay = replay_step(data, step, parts, {dir, call.keep, call.ranks});
  }
  const bool ranked = !replay.losses.empty();
  const DocumentLoss all = sum_of(replay.losses);
  const double loss = all.sum;
  const std::vector<DocumentRow> rows = document_rows(parts, replay.losses);
  if (call.json) {
    Json json = {{"step", call.step},
                 {"attempt", step.record.attempt},
                 {"loss", step.record.loss},
                 {"sequences", step.sequences},
                 {run::kDataHashKey, fmt::format("{:016x}", now)},
                 {"recorded_data_hash", recorded ? Json(hex(recorded)) : Json()},
                 {"documents", json_of(rows, loss, ranked)},
                 {"parts", json_of(parts)}};
    if (call.loss) {
      json["replay"] = {{"from", replay.from},
                        {"ranks", replay.ranks},
                        {"loss", replay.loss},
                        {run::kGradNormKey, replay.grad_norm},
                        {"recorded_grad_norm", step.record.grad_norm},
                        {run::kDataHashKey, hex(replay.data_hash)},
                        {"same", replay.first_different == 0},
                        {"first_different", replay.first_different},
                        {"loss_of_documents", loss},
                        {"targets", all.targets},
                        {"unranked", replay.unranked}};
    }
    fmt::print("{}\n", json_text(json, 2));
    return same_data ? 0 : kExitOtherData;
  }
  fmt::print("step {} of {}, by start {}: loss {:.6g}, {}, {}\n", call.step, call.run,
             step.record.attempt, step.record.loss, counted(step.sequences, "sequence"),
             counted(std::ssize(rows), "document"));
  if (!recorded) {
    fmt::print("data hash {:016x}; the run has not recorded what it was\n", now);
  } else if (same_data) {
    fmt::print("data hash {:016x}, as recorded: this is what was trained on\n", now);
  } else {
    fmt::print(
        "OTHER DATA: the data hash is {:016x}, and {} is recorded: the tokens of these "
        "documents are not those that were trained on. 'longhaul verify STORE' says "
        "whether a store is damaged\n",
        now, hex(recorded));
  }
  if (call.loss) {
    fmt::print("{}\n", replay_verdict(replay, step.record));
    if (ranked) {
      fmt::print("{}\n", sum_verdict(all, replay.loss));
    } else {
      fmt::print("no ranking: {}\n", replay.unranked);
    }
  }
  fmt::print("\n");
  print_documents(rows, loss, call.lines);
  return same_data ? 0 : kExitOtherData;
}

int explain_document(const WhyCall& call, RunData& data) {
  const size_t colon = call.document.rfind(':');
  const auto record =
      colon == std::string::npos
          ? std::nullopt
          : whole_number<int64_t>(std::string_view(call.document).substr(colon + 1));
  if (!record) {
    fail_input("why", "--document {} is not FILE:RECORD, such as wiki/a.jsonl:17",
               call.document);
  }
  const std::vector<Sight> sights = data.sights(call.document.substr(0, colon), *record);
  print_notes(data);
  if (call.json) {
    Json list = Json::array();
    for (const Sight& sight : sights) {
      list.push_back({{"step", sight.step},
                      {"sequence", sight.sequence},
                      {"source", sight.source},
                      {"tokens", sight.tokens}});
    }
    fmt::print("{}\n", json_text(list, 2));
    return 0;
  }
  if (sights.empty()) {
    fmt::print("no step of {} has seen {} so far\n", call.run, call.document);
    return 0;
  }
  std::vector<std::vector<std::string>> cells = {
      {"step", "sequence", "tokens", "source"}};
  for (const Sight& sight : sights) {
    cells.push_back({sight.step == 0 ? "before this run" : std::to_string(sight.step),
                     std::to_string(sight.sequence), grouped(sight.tokens),
                     sight.source});
  }
  print_cells(cells, {true, true, true, false});
  return 0;
}

}  // namespace

void add_why(CLI::App& program, Outcome& outcome) {
  const auto call = std::make_shared<WhyCall>();
  CLI::App* verb = program.add_subcommand(
      "why", "Names the documents of a step, or the steps that saw a document");
  verb->add_option("run", call->run, "the run's directory")->required();
  CLI::Option* step =
      verb->add_option("--step", call->step, "the step whose documents are named")
          ->check(CLI::PositiveNumber);
  CLI::Option* document = verb->add_option(
      "--document", call->document,
      "FILE:RECORD, a document as --step names it: the steps that saw it are listed");
  document->excludes(step);
  CLI::Option* loss = verb->add_flag(
      "--loss", call->loss,
      "train again from the checkpoint before the step, in a directory of its own, and "
      "rank the documents by their share of the loss");
  loss->needs(step);
  verb->add_option("--out", call->out,
                   "with --loss: the directory to train in, which is removed afterwards; "
                   "default: why-step-N here")
      ->needs(loss);
  verb->add_flag("--keep", call->keep, "with --loss: keep that directory")->needs(loss);
  verb->add_option("--ranks", call->ranks,
                   "with --loss: ranks that train on this machine; default: as many as "
                   "in the run")
      ->check(CLI::Range(1, 1'000'000))
      ->needs(loss);
  verb->add_option("--lines", call->lines, "documents that are printed; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag("--json", call->json, "one JSON object on standard output");
  verb->footer(
      "Start it in the directory where the run was started. Ends with 1 where the data "
      "is not what was trained on.\n"
      "Examples:\n"
      "  longhaul why runs/cpt --step 8120 --loss\n"
      "  longhaul why runs/cpt --document wiki/a.jsonl:17");
  verb->callback([call, &outcome] {
    if (call->step == 0 && call->document.empty()) {
      throw InputError("why", "give --step N or --document FILE:RECORD");
    }
    RunData data(call->run, outcome.objects);
    outcome.exit_code =
        call->step > 0 ? explain_step(*call, data) : explain_document(*call, data);
  });
}

}  // namespace longhaul::apps
