#pragma once

// The life of a run that a test makes up second by second, with the files that the run
// would leave and the class that each microsecond truly has.

#include <array>
#include <random>
#include <string>
#include <vector>

#include "longhaul/monitor/goodput.h"

namespace longhaul::monitor {

class MadeUpRun {
 public:
  explicit MadeUpRun(uint32_t seed) : random_(seed) {}

  Records records;
  std::vector<Event> events;
  int64_t begin = 1'700'000'000'000'000;  ///< microseconds since 1970
  int64_t now = begin;
  bool supervised = false;

  /// Returns the microseconds of each class that the ledger would report if it had seen
  /// everything.
  std::array<int64_t, kTimeClasses> truth() const {
    std::array<int64_t, kTimeClasses> sums{};
    for (const Piece& piece : pieces_) {
      const bool taken_back =
          piece.step_index >= 0 &&
          !records.all()[static_cast<size_t>(piece.step_index)].counts;
      const TimeClass kind = taken_back ? TimeClass::Redone : piece.kind;
      sums[static_cast<size_t>(kind)] += piece.micros;
    }
    return sums;
  }

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool chance(double share) { return std::bernoulli_distribution(share)(random_); }

  void supervisor_starts() {
    supervised = true;
    event("supervisor_start", {{"job", "7"}, {"requeues", requeues_}});
    spend(TimeClass::Restart, 500'000, 3'000'000);
  }
  void supervisor_ends() {
    supervised = false;
    event("supervisor_end", {});
  }
  /// Leaves the run alone for a time, in the same allocation.
  void idle() { spend(TimeClass::Idle, 1'000'000, 90'000'000); }
  /// Sends the job back to the queue.
  void wait_in_queue() {
    ++requeues_;
    spend(TimeClass::Waiting, 1'000'000, 90'000'000);
  }
  void down() { spend(TimeClass::Restart, 200'000, 20'000'000); }

  /// Starts from the newest checkpoint.
  void start() {
    ++attempt_;
    const int64_t process = now;
    spend(TimeClass::Restart, 300'000, 5'000'000);
    event("start", {{"attempt", attempt_},
                    {"step", saved_},
                    {"job", "7"},
                    {"requeues", requeues_},
                    {"seconds", static_cast<double>(now - process) * 1e-6}});
    records.take_back(saved_, attempt_ - 1, 1e11);
    step_ = saved_;
    spend(TimeClass::Restart, 0, 300'000);
  }

  void step() {
    run::StepRecord record;
    record.step = ++step_;
    record.attempt = attempt_;
    const int64_t data = pick(0, 40'000);
    const int64_t compute = pick(50'000, 900'000);
    record.data_time = static_cast<double>(data) * 1e-6;
    record.step_time = static_cast<double>(data + compute) * 1e-6;
    const auto index = static_cast<int64_t>(records.all().size());
    put(TimeClass::Data, data, index);
    put(TimeClass::Compute, compute, index);
    record.time = static_cast<double>(now) * 1e-6;
    record.loss = 3.0;
    records.add(record);
    between();
  }

  void validate() {
    const int64_t micros = pick(100'000, 2'000'000);
    put(TimeClass::Validation, micros, -1);
    records.add_line(padded(Json{{"step", step_},
                                 {"attempt", attempt_},
                                 {"validation", "set"},
                                 {"loss", 2.0},
                                 {"seconds", static_cast<double>(micros) * 1e-6},
                                 {"time", static_cast<double>(now) * 1e-6}}));
  }

  /// Saves: training stands still for a moment, and the checkpoint is durable two steps
  /// later.
  void save() {
    const int64_t stall = pick(10'000, 400'000);
    const int64_t of = step_;
    const int64_t began = now;
    put(TimeClass::Save, stall, -1);
    between();
    step();
    step();
    saved_ = of;
    event("checkpoint", {{"step", of},
                         {"attempt", attempt_},
                         {"bytes", 1000},
                         {"stall", static_cast<double>(stall) * 1e-6},
                         {"seconds", static_cast<double>(now - began) * 1e-6}});
  }

  void end() { event("end", {{"step", step_}, {"attempt", attempt_}, {"signal", 15}}); }
  /// Kills the run, which leaves no event. Nobody knows what it did after its last line,
  /// so that time counts for the restart.
  void die() {
    if (pieces_.back().kind == TimeClass::Other) pieces_.back().kind = TimeClass::Restart;
  }
  void fail() { event("failure", {{"attempt", attempt_}, {"message", "it broke"}}); }

 private:
  struct Piece {
    TimeClass kind;
    int64_t micros;
    int64_t step_index;  ///< of the record that may be taken back; -1: none
  };

  static std::string padded(const Json& json) {
    std::string text = json.dump();
    text.reserve(text.size() + LineTail::kPadding);
    return text;
  }
  void put(TimeClass kind, int64_t micros, int64_t index) {
    pieces_.push_back({kind, micros, index});
    now += micros;
  }
  void spend(TimeClass kind, int64_t low, int64_t high) {
    put(kind, pick(low, high), -1);
  }
  /// Lets time pass for log lines and other work between steps.
  void between() { spend(TimeClass::Other, 0, 3'000); }
  void event(const char* kind, Json fields) {
    fields["event"] = kind;
    fields["time"] = static_cast<double>(now) * 1e-6;
    events.push_back({kind, static_cast<double>(now) * 1e-6, std::move(fields)});
  }

  std::mt19937 random_;
  std::vector<Piece> pieces_;
  int attempt_ = 0;
  int requeues_ = 0;
  int64_t step_ = 0;
  int64_t saved_ = 0;
};

}  // namespace longhaul::monitor
