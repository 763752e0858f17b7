#include "longhaul/serve/service/http_service.h"

#include <cpp-httplib/httplib.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/base/failure.h"
#include "longhaul/serve/answers.h"
#include "longhaul/serve/engine_link.h"
#include "longhaul/system/messages.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/worker_pool.h"

namespace longhaul::serve {
namespace {

constexpr const char* kJsonType = "application/json";
/// How often a request that is computed looks whether its client has left.
constexpr double kLookSeconds = 0.25;
/// A connection that sends nothing for so long is closed.
constexpr time_t kIdleSeconds = 5;
/// The most bytes of all bodies that come or are read at one time.
constexpr size_t kMostBodies = size_t{64} << 20;
/// How many connections are served at one time, and how many more may wait for it.
constexpr int kConnections = 256, kMostWaiting = 1024;
/// How long connections may still take when rank 0 has ended.
constexpr std::chrono::seconds kLastSeconds{3};

std::string_view text_of(const char* text) { return text == nullptr ? "" : text; }

int status_of(const Error& error) {
  if (error.kind() == ErrorKind::Temporary) return 503;
  return error.kind() == ErrorKind::Internal ? 500 : 400;
}

const char* type_of(int status) {
  return status < 500 ? "invalid_request_error" : "server_error";
}

void answer(httplib::Response& response, const OrderedJson& json) {
  response.set_content(json_text(json), kJsonType);
}

void answer_error(httplib::Response& response, int status, const std::string& message) {
  response.status = status;
  answer(
      response,
      {{"error", {{"message", message}, {"type", type_of(status)}, {"code", status}}}});
}

/// Returns whether two texts are equal, in a time that does not tell where they differ.
bool equals(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]);
  }
  return difference == 0;
}

/// Serves connections on threads that were there from the start: the server's own pool
/// would end the process where the system refuses a thread.
class Connections final : public httplib::TaskQueue {
 public:
  /// `open` counts the connections. Both must outlive the threads' work.
  Connections(system::WorkerPool& threads, std::atomic<int>& open)
      : threads_(threads), open_(open) {}

  bool enqueue(std::function<void()> serve) override {
    if (open_ >= kConnections + kMostWaiting) return false;
    ++open_;
    threads_.add([&open = open_, serve = std::move(serve)] {
      const std::shared_ptr<void> count(nullptr, [&open](void*) {
        --open;
        open.notify_all();
      });
      serve();
    });
    return true;
  }
  /// Waits until all connections have their answers.
  void shutdown() override {
    for (int open = open_; open > 0; open = open_) open_.wait(open);
  }

 private:
  system::WorkerPool& threads_;
  std::atomic<int>& open_;
};

/// Counts the bytes of a body among those of all bodies.
class BodyBytes {
 public:
  explicit BodyBytes(std::atomic<size_t>& all) : all_(all) {}
  ~BodyBytes() { all_ -= mine_; }
  BodyBytes(const BodyBytes&) = delete;
  BodyBytes& operator=(const BodyBytes&) = delete;
  /// Returns false if there is no room for these bytes.
  bool add(size_t bytes) {
    mine_ += bytes;
    return (all_ += bytes) <= kMostBodies;
  }

 private:
  std::atomic<size_t>& all_;
  size_t mine_ = 0;
};

/// A completion under way: its sequences and what has come of them.
struct Running {
  Running(Completion completion, EngineLink& engine,
          const tokenizer::Tokenizer& tokenizer)
      : request(std::move(completion)), call(engine, request.sequences) {
    for (size_t i = 0; i < request.sequences.size(); ++i) {
      answers.emplace_back(request, i, tokenizer);
    }
    open = answers.size();
  }

  /// Waits for an event for a short time. Returns the sequence that it belongs to and
  /// that had not ended before.
  std::optional<size_t> step() {
    const auto event = call.next(kLookSeconds);
    if (!event) return std::nullopt;
    Answer& of = answers[event->first];
    if (of.ended()) return std::nullopt;  // rank 0 did not know yet that it is cancelled
    of.take(event->second);
    if (of.ended()) {
      --open;
      call.cancel(event->first);
    }
    return event->first;
  }

  const Completion request;
  EngineLink::Call call;
  std::vector<Answer> answers;
  size_t open = 0;  ///< sequences that have not ended
};

class HttpService {
 public:
  HttpService(Served served, int socket);
  /// Returns the port. Throws ConfigError if it cannot be had.
  int bind();
  /// Serves until rank 0 has ended.
  void run();

 private:
  /// What is left to do for a request when its body has been read.
  using Work = std::function<void(const httplib::Request&, httplib::Response&)>;
  using Read = std::function<Work(const std::string& body)>;

  void route();
  void post(const char* path, Read read);
  void complete(Completion completion, const httplib::Request& request,
                httplib::Response& response);
  void stream(std::shared_ptr<Running> running, httplib::Response& response);
  OrderedJson models() const;
  OrderedJson tokenizer_info() const;
  Reading reading() const { return {served_, *tokenizer_, chat_.get()}; }

  const Served served_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<chat::ChatFormat> chat_;
  EngineLink engine_;
  std::atomic<size_t> body_bytes_ = 0;
  std::mutex reading_mutex_;  ///< one body at a time becomes JSON, which takes memory
  std::atomic<uint64_t> next_answer_ = 1;
  std::atomic<int> connections_ = 0;
  httplib::Server server_;
  system::WorkerPool threads_{kConnections};
};

HttpService::HttpService(Served served, int socket)
    : served_(std::move(served)),
      tokenizer_(tokenizer::Tokenizer::load(served_.tokenizer)),
      chat_(served_.chat_problem.empty() ? std::make_unique<chat::ChatFormat>(
                                               tokenizer_->files().front().parent_path())
                                         : nullptr),
      engine_(socket) {
  server_.new_task_queue = [this] { return new Connections(threads_, connections_); };
  // The library would let two servers share one port.
  server_.set_socket_options([](int listener) {
    const int yes = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server_.set_payload_max_length(kMostBodyBytes);
  server_.set_keep_alive_timeout(kIdleSeconds);
  server_.set_read_timeout(kIdleSeconds);
  server_.set_write_timeout(kIdleSeconds);
  server_.set_exception_handler([](const httplib::Request&, httplib::Response& response,
                                   const std::exception_ptr& problem) {
    try {
      std::rethrow_exception(problem);
    } catch (const std::exception& thrown) {
      const Error error = to_error(thrown);
      answer_error(response, status_of(error), error.message());
    } catch (...) {
      answer_error(response, 500, "unknown");
    }
  });
  server_.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    const int status = response.status;
    answer_error(response, status, std::string(text_of(httplib::status_message(status))));
  });
  server_.set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        using Result = httplib::Server::HandlerResponse;
        const std::string given = request.get_header_value("Authorization");
        if (served_.token.empty() || request.path == "/health" ||
            equals(given, "Bearer " + served_.token)) {
          return Result::Unhandled;
        }
        answer_error(response, 401, "the request has not the token of this server");
        return Result::Handled;
      });
  route();
}

int HttpService::bind() {
  int port = served_.port;
  if (port == 0) {
    port = server_.bind_to_any_port(served_.host);
  } else if (!server_.bind_to_port(served_.host, port)) {
    port = -1;
  }
  if (port <= 0) {
    fail_config("serve", "{} port {} cannot be had; name another --host or --port",
                served_.host, served_.port);
  }
  return port;
}

void HttpService::run() {
  std::thread([this] {
    system::leave_signals_to_main_thread();
    engine_.await_end();
    server_.stop();
    // Ends the process even if a client keeps its connection.
    std::this_thread::sleep_for(kLastSeconds);
    ::_exit(0);
  }).detach();
  server_.listen_after_bind();
  ::_exit(0);
}

/// Reads the body of each request to a path. The body is freed before the work begins.
void HttpService::post(const char* path, Read read) {
  server_.Post(path, [this, read = std::move(read)](
                         const httplib::Request& request, httplib::Response& response,
                         const httplib::ContentReader& content) {
    const std::string limit = fmt::format("a body has at most {} bytes", kMostBodyBytes);
    if (request.is_multipart_form_data()) {
      return answer_error(response, 400, "the body is a form; send JSON");
    }
    if (request.get_header_value_u64("Content-Length") > kMostBodyBytes) {
      return answer_error(response, 413, limit);
    }
    Work work;
    {
      BodyBytes counted(body_bytes_);
      std::string body;
      bool large = false, room = true;
      const bool whole = content([&](const char* data, size_t size) {
        large = body.size() + size > kMostBodyBytes;
        room = counted.add(size);
        if (room && !large) body.append(data, size);
        return room && !large;
      });
      if (large || response.status == 413) return answer_error(response, 413, limit);
      if (!room) {
        return answer_error(response, 503, "too many bodies come at one time; try later");
      }
      if (!whole) {
        return answer_error(
            response, 408,
            fmt::format("the request has not come within {} seconds, or is cut short",
                        LONGHAUL_REQUEST_SECONDS));
      }
      const std::lock_guard lock(reading_mutex_);
      work = read(body);
    }
    work(request, response);
  });
}

void HttpService::route() {
  const auto get = [this](const char* path, auto make) {
    server_.Get(path, [make](const httplib::Request&, httplib::Response& response) {
      answer(response, make());
    });
  };
  get("/health", [] { return OrderedJson{{"status", "ok"}}; });
  get("/v1/models", [this] { return models(); });
  get("/tokenizer_info", [this] { return tokenizer_info(); });
  const auto give = [](OrderedJson json) -> Work {
    return
        [json = std::move(json)](const httplib::Request&, httplib::Response& response) {
          answer(response, json);
        };
  };
  post("/tokenize", [this, give](const std::string& body) {
    const std::vector<int64_t> ids = read_tokenize(body, reading());
    return give({{"count", ids.size()},
                 {"max_model_len", served_.max_length},
                 {"tokens", ids},
                 {"token_strs", nullptr}});
  });
  post("/detokenize", [this, give](const std::string& body) {
    return give({{"prompt", valid_text(read_detokenize(body, reading()))}});
  });
  const auto completions = [this](const char* path, auto read) {
    post(path, [this, read](const std::string& body) -> Work {
      return [this, completion = read(body, reading())](const httplib::Request& request,
                                                        httplib::Response& response) {
        complete(completion, request, response);
      };
    });
  };
  completions("/v1/completions", read_completion);
  completions("/v1/chat/completions", read_chat_completion);
}

void HttpService::complete(Completion completion, const httplib::Request& request,
                           httplib::Response& response) {
  auto running = std::make_shared<Running>(std::move(completion), engine_, *tokenizer_);
  if (running->request.stream) return stream(std::move(running), response);
  using Clock = std::chrono::steady_clock;
  Clock::time_point looked = Clock::now();
  while (running->open > 0) {
    running->step();
    if (Clock::now() - looked < std::chrono::duration<double>(kLookSeconds)) continue;
    looked = Clock::now();
    if (request.is_connection_closed()) {
      // A client that has closed only its own end still reads.
      return answer_error(response, 408, "the client's end of the connection is closed");
    }
  }
  std::vector<OrderedJson> choices;
  for (Answer& one : running->answers) choices.push_back(one.choice());
  OrderedJson whole = answer_object(running->request, served_.model, next_answer_++,
                                    std::move(choices), false);
  whole["usage"] = usage_of(running->request, running->answers);
  answer(response, whole);
}

void HttpService::stream(std::shared_ptr<Running> running, httplib::Response& response) {
  const uint64_t number = next_answer_++;
  const auto send = [](httplib::DataSink& sink, const std::string& text) {
    const std::string line = "data: " + text + "\n\n";
    return sink.write(line.data(), line.size());
  };
  response.set_chunked_content_provider(
      "text/event-stream",
      [this, running, number, send](size_t, httplib::DataSink& sink) {
        const auto object = [&](std::vector<OrderedJson> choices) {
          return answer_object(running->request, served_.model, number,
                               std::move(choices), true);
        };
        try {
          if (running->open > 0) {
            const std::optional<size_t> of = running->step();
            if (!of) return sink.is_writable();
            return send(sink, json_text(object({running->answers[*of].choice()})));
          }
          if (running->request.stream_usage) {
            OrderedJson last = object({});
            last["usage"] = usage_of(running->request, running->answers);
            if (!send(sink, json_text(last))) return false;
          }
          if (!send(sink, "[DONE]")) return false;
          sink.done();
          return true;
        } catch (const std::exception& problem) {
          const Error error = to_error(problem);
          return send(sink, json_text(OrderedJson{{"error",
                                                   {{"message", error.message()},
                                                    {"type", type_of(status_of(error))},
                                                    {"code", status_of(error)}}}})) &&
                 false;
        }
      });
}

OrderedJson HttpService::models() const {
  return {{"object", "list"},
          {"data", OrderedJson::array({{{"id", served_.model},
                                        {"object", "model"},
                                        {"owned_by", "longhaul"},
                                        {"max_model_len", served_.max_length}}})}};
}

OrderedJson HttpService::tokenizer_info() const {
  const auto text = [&](std::optional<tokenizer::TokenId> id) -> OrderedJson {
    const std::optional<std::string> token =
        id ? tokenizer_->id_to_token(*id) : std::nullopt;
    return token ? OrderedJson(*token) : OrderedJson();
  };
  return {{"tokenizer_class", "longhaul"},
          {"bos_token", text(tokenizer_->bos_id())},
          {"eos_token", text(tokenizer_->eos_id())},
          {"pad_token", nullptr},
          {"model_max_length", served_.max_length}};
}

}  // namespace

int serve_http(int socket) {
  // The process ends when the socket closes. A signal that is meant for the job does not
  // end it.
  system::ignore_signals_until_exit();
  std::signal(SIGPIPE, SIG_IGN);
  std::string text;
  if (!system::receive_text(socket, text, kMostMessageBytes)) return 0;
  std::unique_ptr<HttpService> service;
  const std::string reply = reply_of([&] {
    service = std::make_unique<HttpService>(Served::of(Json::parse(text)), socket);
    return std::to_string(service->bind());
  });
  if (!system::send_text(socket, reply) || reply.front() != kAnswerMark) return 0;
  service->run();
  return 0;
}

}  // namespace longhaul::serve
