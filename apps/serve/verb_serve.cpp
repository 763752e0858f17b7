#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "apps/named_model.h"
#include "apps/objects/local_input.h"
#include "apps/program.h"
#include "apps/serve/http_process.h"
#include "apps/serve/text_model.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/base/text.h"
#include "longhaul/chat/chat_format.h"
#include "longhaul/comm/agree.h"
#include "longhaul/infer/chat_prompt.h"
#include "longhaul/session/serving.h"
#include "longhaul/system/signals.h"

namespace longhaul::apps {
namespace {

constexpr const char* kServeArea = "serve";
/// The longest sequence if nobody names one and the model has more positions.
constexpr int64_t kUsualLength = 32768;
constexpr size_t kShortestToken = 16;
/// A rank whose death has ended the others is gone within this time.
constexpr auto kGoneTime = std::chrono::milliseconds(300);

struct ServeOptions {
  ModelCall call;
  std::string tokenizer;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string token_file;
  int64_t max_length = 0;
  serve::BatchLimits limits;
};

/// Returns whether only this machine reaches an address. Names may mean any address.
bool is_loopback(const std::string& host) {
  const bool numeric = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || (numeric && host.starts_with("127."));
}

void check_host(const ServeOptions& options) {
  if (is_loopback(options.host) || !options.token_file.empty()) return;
  fail_config(kServeArea,
              "--host {} may be reached from other machines, so it needs --token-file: a "
              "file with the token that clients have to send",
              options.host);
}

/// Reads the token that clients have to send; empty: none is needed.
std::string token_of(const ServeOptions& options) {
  if (options.token_file.empty()) return {};
  const std::string text = read_text(options.token_file);
  const std::string token(trimmed(text));
  const bool plain =
      std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
  if (token.size() >= kShortestToken && plain) return token;
  fail_input(kServeArea,
             "{} has to hold one line of {} or more printable characters; make one with "
             "openssl rand -hex 32",
             options.token_file, kShortestToken);
}

/// The processes of all ranks, to name one that has died.
class RankProcesses {
 public:
  /// Collective.
  explicit RankProcesses(comm::Communicator& world) : host_(host_name()) {
    const Json mine = {
        {"host", host_}, {"pid", ::getpid()}, {"start", process_start(::getpid())}};
    for (const std::string& text : world.gather_strings(json_text(mine))) {
      ranks_.push_back(Json::parse(text));
    }
  }

  /// Returns which rank of this machine is gone, in words; empty if none is.
  std::string gone() const {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Json& one = ranks_[rank];
      const auto pid = one["pid"].get<int64_t>();
      if (one["host"] == host_ && process_start(pid) != one["start"].get<int64_t>()) {
        return fmt::format("rank {} of {} (process {} on {}) has died or was ended", rank,
                           ranks_.size(), pid, host_);
      }
    }
    return {};
  }

 private:
  std::string host_;
  std::vector<Json> ranks_;
};

/// Throws TemporaryError if a rank is gone, or is gone a moment later. `more` is what is
/// known besides; it may be the same.
void fail_if_gone(const RankProcesses& processes, const std::string& more) {
  const auto last = std::chrono::steady_clock::now() + kGoneTime;
  do {
    const std::string gone = processes.gone();
    if (!gone.empty()) {
      const bool is_news = !more.empty() && !more.starts_with(gone);
      fail_temporary("comm", "{}; start the server again{}", gone,
                     is_news ? ": " + more : "");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (std::chrono::steady_clock::now() < last);
}

/// Returns what the process for HTTP has to know.
serve::Served served_of(const ServeOptions& options, const ModelConfig& model,
                        const tokenizer::Tokenizer& tokenizer, int64_t max_length) {
  serve::Served served;
  served.model = options.call.model;
  served.tokenizer = tokenizer.files().front().string();
  served.vocab_size = model.vocab_size;
  served.max_length = max_length;
  served.eos_ids = model.eos_token_ids;
  if (const auto eos = tokenizer.eos_id()) served.eos_ids.push_back(*eos);
  served.host = options.host;
  served.port = options.port;
  served.token = token_of(options);
  try {
    const chat::ChatFormat format(tokenizer.files().front().parent_path());
    const auto end = infer::chat_prompt(tokenizer, "a", {}, model.vocab_size).end_of_turn;
    served.end_of_turn = end.value_or(-1);
  } catch (const InputError& problem) {
    served.chat_problem = problem.message();
  }
  return served;
}

/// Serves on rank 0, with the other ranks, until a signal comes. Collective.
void serve_model(const ServeOptions& options, const objects::Access& objects,
                 const fs::path& path, const World& world) {
  const NamedModel model = open_model(path, objects, *world, options.call.adapter);
  check_causal(kServeArea, model.config);
  const auto tokenizer = tokenizer_of(kServeArea, options.tokenizer, model.config);
  const ParallelSection parallel = asked_parallel(options.call, model, *world);
  check_whole_data(kServeArea, parallel, model, world->size());
  const int64_t length = options.max_length > 0
                             ? options.max_length
                             : std::min(model.config.network.max_positions, kUsualLength);
  const session::Session session =
      load_model(model, options.call, parallel, length, /*micro_size=*/1, world);

  const RankProcesses processes(*world);
  const system::SignalWatch signals;
  std::unique_ptr<HttpProcess> http;
  comm::on_rank_zero(*world, [&] {
    std::ranges::for_each(tokenizer->warnings(), say_warning);
    http = std::make_unique<HttpProcess>(
        served_of(options, model.config, *tokenizer, length));
    fmt::print(
        "serving {} at http://{}:{} ({}, sequences of up to {} tokens). This server is "
        "for evaluation, not for production; Ctrl-C ends it.\n",
        options.call.model,
        options.host.find(':') == std::string::npos ? options.host
                                                    : "[" + options.host + "]",
        http->port(), session.layout().description().describe(), grouped(length));
    std::fflush(stdout);
  });
  const auto end_reason = [&]() -> std::string {
    if (signals.raised() == 0) return {};
    fail_if_gone(processes, "");
    return system::signal_name(signals.raised());
  };
  try {
    session::serve_sequences(session, http ? &http->queue() : nullptr, options.limits,
                             end_reason);
  } catch (const TemporaryError& error) {
    if (world->rank() == 0) fail_if_gone(processes, error.message());
    throw;
  }
}

}  // namespace

void add_serve(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* verb = program.add_subcommand(kServeVerb.name, kServeVerb.description);
  add_model_options(*verb, options->call);
  verb->add_option("--tokenizer", options->tokenizer,
                   "tokenizer.json, tokenizer.model or a directory with one; default: "
                   "the model's own");
  verb->add_option("--host", options->host,
                   "address to listen at; one that is not of this machine alone needs "
                   "--token-file")
      ->capture_default_str();
  verb->add_option("--port", options->port, "port to listen at; 0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  verb->add_option("--token-file", options->token_file,
                   "a file with the token that clients have to send (Authorization: "
                   "Bearer TOKEN)");
  verb->add_option("--max-length", options->max_length,
                   "longest sequence, in tokens; default: the model's, at most 32768")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  verb->add_option("--batch", options->limits.sequences,
                   "most sequences that are computed together")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  verb->footer(
      "Examples:\n"
      "  longhaul serve hf/\n"
      "  mpirun -n 4 longhaul serve runs/cpt --tp 4 --port 8001\n"
      "  curl localhost:8000/v1/completions -d '{\"prompt\": \"The sea\", "
      "\"max_tokens\": "
      "20}'\n"
      "  lm_eval --model local-completions --tasks TASKS --model_args "
      "model=hf/,base_url=http://localhost:8000/v1/completions,tokenizer_backend=remote,"
      "num_concurrent=32\n"
      "The server is for evaluation, not for production: docs/serve.md.");
  verb->callback([options, &outcome] {
    check_host(*options);
    const LocalCheckpoint model(options->call.model, outcome.objects);
    const std::string named = model.path();
    options->tokenizer = local_input(options->tokenizer, outcome.objects);
    outcome.exit_code = with_model(
        named, outcome.objects,
        std::bind_front(serve_model, std::cref(*options), std::cref(outcome.objects)));
  });
}

}  // namespace longhaul::apps
