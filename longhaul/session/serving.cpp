#include "longhaul/session/serving.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/session/sequence_runner.h"

namespace longhaul::session {
namespace {

/// How long rank 0 waits for a sequence before it tells the other ranks that it is there.
constexpr double kQuietSeconds = 0.5;

Continuation continuation_of(const serve::Sequence& sequence) {
  Continuation out;
  out.prompt = sequence.prompt;
  out.sampling.max_new_tokens = sequence.max_tokens;
  out.sampling.temperature = sequence.temperature;
  out.sampling.top_p = sequence.top_p;
  out.sampling.seed = sequence.seed;
  out.top = sequence.top;
  out.scores = sequence.scores;
  return out;
}

/// Returns the largest log-probability at the place of a given token. Clients take the
/// token for the greedy one where its own number equals the largest. So a token that ties
/// with the greedy one, or rounds to its number, gets a larger number beside it.
float largest_beside(const TokenScore& score, int64_t token) {
  if (score.best == token || score.best_log_prob > score.log_prob) {
    return score.best_log_prob;
  }
  return std::nextafter(score.log_prob, std::numeric_limits<float>::infinity());
}

/// One batch of sequences, on every rank.
class Batch {
 public:
  /// `ends` tells on rank 0 whether the server ends.
  Batch(SequenceRunner& runner, serve::SequenceQueue* queue, comm::Communicator& world,
        const std::function<bool()>& ends, std::vector<serve::Sequence> sequences)
      : runner_(runner),
        queue_(queue),
        world_(world),
        ends_(ends),
        sequences_(std::move(sequences)),
        made_(sequences_.size(), 0) {}

  /// Computes the batch, all of it unless the server ends. Collective.
  void run() {
    std::vector<Continuation> work;
    for (const serve::Sequence& sequence : sequences_) {
      work.push_back(continuation_of(sequence));
    }
    std::vector<ChosenToken> tokens = runner_.begin(std::move(work));
    tell_scores();
    while (take(tokens)) tokens = runner_.next();
  }

 private:
  void tell_scores() {
    const std::vector<TokenScore> scores = runner_.take_scores();
    if (queue_ == nullptr || scores.empty()) return;
    auto from = scores.begin();
    Json events = Json::array();
    for (const serve::Sequence& sequence : sequences_) {
      if (!sequence.scores) continue;
      Json list = Json::array();
      for (size_t i = 1; i < sequence.prompt.size(); ++i, ++from) {
        list.push_back(
            {from->log_prob, largest_beside(*from, sequence.prompt[i]), from->best});
      }
      events.push_back({{"number", sequence.number}, {"scores", std::move(list)}});
    }
    queue_->tell(events);
  }

  /// Takes the tokens that were chosen, ends the sequences that have all of theirs, and
  /// returns whether any is left. Collective.
  bool take(const std::vector<ChosenToken>& tokens) {
    Json events = Json::array();
    std::vector<size_t> kept;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      events.push_back(event_of(i, tokens[i]));
      if (!events.back().contains("end")) kept.push_back(i);
    }
    if (queue_ != nullptr) queue_->tell(events);
    return !kept.empty() && go_on_with(kept);
  }

  /// Returns the event of a token. With its last one a sequence ends.
  Json event_of(size_t i, const ChosenToken& token) {
    const serve::Sequence& sequence = sequences_[i];
    Json event = {{"number", sequence.number}};
    const bool is_chosen = sequence.max_tokens > 0;
    if (is_chosen) event["id"] = token.id;
    if (is_chosen && sequence.top >= 0) {
      event["log_prob"] = token.log_prob;
      event["top"] = token.top;
    }
    const bool stops = is_chosen && std::ranges::count(sequence.stop_ids, token.id) > 0;
    if (stops || ++made_[i] >= sequence.max_tokens) {
      event["end"] = stops ? "stop" : "length";
    }
    return event;
  }

  /// Leaves sequences out for which nobody waits, which are all where the server ends;
  /// only rank 0 knows them. Returns whether any is left. Collective.
  bool go_on_with(const std::vector<size_t>& open) {
    std::vector<int64_t> wanted(open.size(), 1);
    const bool ends = queue_ != nullptr && ends_();
    for (size_t i = 0; queue_ != nullptr && i < open.size(); ++i) {
      if (ends || queue_->is_cancelled(sequences_[open[i]].number)) wanted[i] = 0;
    }
    world_.broadcast({wanted.data(), std::ssize(wanted), format::DType::I64}, 0)->wait();
    std::vector<size_t> kept;
    for (size_t i = 0; i < open.size(); ++i) {
      if (wanted[i] != 0) kept.push_back(open[i]);
    }
    if (kept.size() == sequences_.size()) return true;
    if (kept.empty()) return false;
    runner_.keep(kept);
    std::vector<serve::Sequence> sequences;
    std::vector<int64_t> made;
    for (const size_t i : kept) {
      sequences.push_back(std::move(sequences_[i]));
      made.push_back(made_[i]);
    }
    sequences_ = std::move(sequences);
    made_ = std::move(made);
    return true;
  }

  SequenceRunner& runner_;
  serve::SequenceQueue* queue_;
  comm::Communicator& world_;
  const std::function<bool()>& ends_;
  std::vector<serve::Sequence> sequences_;
  std::vector<int64_t> made_;  ///< tokens of each so far
};

}  // namespace

void serve_sequences(const Session& session, serve::SequenceQueue* queue,
                     const serve::BatchLimits& limits,
                     const std::function<std::string()>& end_reason) {
  SequenceRunner runner(session);
  comm::Communicator& world = session.world();
  bool over = false;
  const std::function<bool()> ends = [&] {
    over = over || !end_reason().empty();
    return over;
  };
  while (true) {
    Json order = Json::array();
    if (queue != nullptr && !ends()) {
      for (const serve::Sequence& sequence : queue->take(limits, kQuietSeconds)) {
        order.push_back(sequence.json());
      }
    } else {
      order = nullptr;
    }
    order = Json::parse(world.broadcast_string(json_text(order), 0));
    if (order.is_null()) return;
    std::vector<serve::Sequence> sequences;
    for (const Json& one : order) sequences.push_back(serve::Sequence::of(one));
    if (!sequences.empty()) Batch(runner, queue, world, ends, std::move(sequences)).run();
  }
}

}  // namespace longhaul::session
