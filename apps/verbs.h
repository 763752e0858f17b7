#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "longhaul/objects/access.h"

namespace longhaul::apps {

/// What a verb hands back to main: its exit code, and the access by which it has read and
/// written objects. With this access main names the addresses of objects in an error, in
/// place of the paths of their local copies.
struct Outcome {
  int exit_code = 0;
  objects::Access objects;
};

struct DoctorDevices;  // apps/links/device_links.h

/// A verb of longhaul-torch, which longhaul lists among its own.
struct TorchVerb {
  const char* name;
  const char* description;
};
inline constexpr TorchVerb kBenchVerb = {
    "bench", "What this machine can do, and how far a run's step is from it"};
inline constexpr TorchVerb kCompileVerb = {
    "compile", "Compiles what a run's steps need, for devices that compile shapes"};
inline constexpr TorchVerb kEvalVerb = {
    "eval",
    "Loss, perplexity and bits per byte of a model on a token store, or its scores in "
    "tasks of lm-eval"};
inline constexpr TorchVerb kGenerateVerb = {
    "generate", "Continues a text, to read what a model has learned"};
inline constexpr TorchVerb kNewVerb = {
    "new", "Writes a run file for a model, data and this machine, with comments"};
inline constexpr TorchVerb kRehearseVerb = {
    "rehearse", "Runs a run's first steps at full size on memory that is not there"};
inline constexpr TorchVerb kServeVerb = {
    "serve", "Serves a model over HTTP, for evaluation: completions, chats, tokens"};
inline constexpr TorchVerb kTrainVerb = {"train",
                                         "Trains a model, or goes on training it"};
inline constexpr const char* kVersionHelp =
    "Print the version, the commit and every library's version";

// Each verb has a function that adds its subcommand to the program, with an example in
// its footer. The subcommand's callback does the work, throws longhaul::Error on failure
// and sets outcome.exit_code when it ends in another way than 0. `outcome` outlives the
// call.

void add_agent(CLI::App& program, Outcome& outcome);
void add_bench(CLI::App& program, Outcome& outcome);
void add_compare(CLI::App& program, Outcome& outcome);
void add_compile(CLI::App& program, Outcome& outcome);
void add_config(CLI::App& program, Outcome& outcome);
void add_data(CLI::App& program, Outcome& outcome);
void add_docs(CLI::App& program, Outcome& outcome);
void add_doctor(CLI::App& program, Outcome& outcome, const DoctorDevices& devices);
void add_drill(CLI::App& program, Outcome& outcome);
void add_eval(CLI::App& program, Outcome& outcome);
/// With --passport, which needs LibTorch, the verb calls `become_torch_program` first. In
/// longhaul-torch that does nothing.
void add_export(CLI::App& program, Outcome& outcome,
                const std::function<void()>& become_torch_program);
void add_generate(CLI::App& program, Outcome& outcome);
void add_import(CLI::App& program, Outcome& outcome);
void add_inspect(CLI::App& program, Outcome& outcome);
void add_launch(CLI::App& program, Outcome& outcome);
void add_new(CLI::App& program, Outcome& outcome);
void add_plan(CLI::App& program, Outcome& outcome);
void add_recipe(CLI::App& program, Outcome& outcome);
void add_rehearse(CLI::App& program, Outcome& outcome);
void add_report(CLI::App& program, Outcome& outcome);
void add_serve(CLI::App& program, Outcome& outcome);
void add_supervise(CLI::App& program, Outcome& outcome);
void add_submit(CLI::App& program, Outcome& outcome);
void add_train(CLI::App& program, Outcome& outcome);
void add_try(CLI::App& program, Outcome& outcome);
// Verbs under `data`.
void add_data_build(CLI::App& data_verb, Outcome& outcome);
void add_data_build_bert(CLI::App& data_verb, Outcome& outcome);
void add_data_export(CLI::App& data_verb, Outcome& outcome);
void add_data_inspect(CLI::App& data_verb, Outcome& outcome);
void add_data_split(CLI::App& data_verb, Outcome& outcome);
void add_train_tokenizer(CLI::App& data_verb, Outcome& outcome);
void add_verify(CLI::App& program, Outcome& outcome);
void add_watch(CLI::App& program, Outcome& outcome);
void add_why(CLI::App& program, Outcome& outcome);
/// Adds the verb that `why --loss` calls.
void add_document_losses(CLI::App& program, Outcome& outcome);

/// Turns the words `data build --bert` into the verb that they mean, data build-bert.
void expand_build_bert(int& argc, char** argv);

}  // namespace longhaul::apps
