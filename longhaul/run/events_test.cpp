#include "longhaul/run/events.h"

#include <gtest/gtest.h>

#include "longhaul/base/clock.h"

namespace longhaul::run {
namespace {

std::string as_it_is(std::string_view text, size_t) { return std::string(text); }

template <typename Event>
std::string line_of(const Event& event) {
  return event_fields(event).dump();
}

TEST(Events, TheLineOfEachKindHasItsOneForm) {
  EXPECT_EQ(line_of(StartEvent{2, 10, 50, 8, "17", 1, 2.5, 2}),
            R"({"attempt":2,"job":"17","last_step":50,"nodes":2,"requeues":1,)"
            R"("seconds":2.5,"step":10,"world":8})");
  EXPECT_EQ(line_of(EndDecidedEvent{40, 40, 50, 8, 12.5}),
            R"({"decay_after":40,"last_step":50,"seconds_left":12.5,"step":40,)"
            R"("world":8})");
  EXPECT_EQ(
      line_of(EndEvent{2, 50, 15, "SIGTERM", 9.5}),
      R"({"attempt":2,"seconds":9.5,"signal":15,"step":50,"stopped_by":"SIGTERM"})");
  EXPECT_EQ(line_of(FailureEvent{2, "[data] x"}),
            R"({"attempt":2,"message":"[data] x"})");
  EXPECT_EQ(line_of(CheckpointEvent{2, 20, 4096, 1.5, 2.0, 0.25, 0.5}),
            R"({"attempt":2,"bytes":4096,"longest":2.0,"seconds":1.5,"stall":0.25,)"
            R"("step":20,"waited":0.5})");
  EXPECT_EQ(line_of(FallBackEvent{"step_00000020", "step_00000010", "torn"}),
            R"({"from":"step_00000020","message":"torn","to":"step_00000010"})");
  EXPECT_EQ(line_of(BadStepEvent{2, 7, "spike", "nan", 3.5, "why", "skip", {5, 7}}),
            R"({"action":"skip","attempt":2,"bad_steps":[5,7],"grad_norm":3.5,)"
            R"("kind":"spike","loss":"nan","step":7,"why":"why"})");
  EXPECT_EQ(line_of(RollbackEvent{40, 30, 31, 40}),
            R"({"from_step":40,"skipped_from":31,"skipped_to":40,"to_step":30})");
  EXPECT_EQ(line_of(ExpertLoadsEvent{8, {{1, 1.5, 0.25, {6, 0, 2}}}}),
            R"({"layers":[{"counts":[6,0,2],"effective":1.5,"entropy":0.25,"layer":1}],)"
            R"("step":8})");
  EXPECT_EQ(line_of(RouterCollapsedEvent{8, 1, 1.5, 3, 0, 2.25}),
            R"({"busiest":2.25,"busiest_expert":0,"effective":1.5,"experts":3,"layer":1,)"
            R"("step":8})");
  EXPECT_EQ(line_of(SupervisorStartEvent{"17", 1, "n1", 8, 100}),
            R"({"host":"n1","job":"17","max_restarts":100,"ranks":8,"requeues":1})");
  EXPECT_EQ(line_of(FaultEvent{"killed", 3, "n1", 12, "rank 3 died"}),
            R"({"cause":"rank 3 died","kind":"killed","node":"n1","rank":3,"step":12})");
  EXPECT_EQ(line_of(RequeueEvent{"too few nodes"}), R"({"reason":"too few nodes"})");
}

TEST(Events, ASignalSaysTheSignalOrTheFileAndNotTheOther) {
  EXPECT_EQ(line_of(SignalEvent{4, {}, "PAUSE"}), R"({"file":"PAUSE","step":4})");
  EXPECT_EQ(line_of(SignalEvent{4, "SIGTERM", {}}), R"({"signal":"SIGTERM","step":4})");
}

TEST(Events, WhatWasWrittenReadsBack) {
  const Json line =
      event_line(CheckpointEvent::kKind,
                 event_fields(CheckpointEvent{2, 20, 4096, 1.5, 2.0, 0.25, 0.5}));
  const EventHead head = EventHead::read(line, as_it_is);
  EXPECT_EQ(head.kind, "checkpoint");
  EXPECT_EQ(head.boot, own_clock().boot);
  EXPECT_EQ(head.booted, own_clock().booted);
  EXPECT_GT(head.time, 1.6e9);
  EXPECT_EQ(head.attempt, 2);
  const auto saved = read_event<CheckpointEvent>(line, as_it_is);
  EXPECT_EQ(event_fields(saved),
            event_fields(CheckpointEvent{2, 20, 4096, 1.5, 2.0, 0.25, 0.5}));
  int of_the_head = 0;
  for (const auto& [key, value] : line.items())
    of_the_head += EventHead::has(key) ? 1 : 0;
  EXPECT_EQ(of_the_head, 4);
}

TEST(Events, WhatIsAbsentOrOfAnotherTypeHasItsDefault) {
  const Json line = {
      {"event", 3},     {"time", "noon"},   {"attempt", "first"},
      {"step", "many"}, {"stall", nullptr}, {"world", Json::array()},
      {"job", 17},      {"file", 1},        {"stopped_by", Json::object()}};
  const EventHead head = EventHead::read(line, as_it_is);
  EXPECT_EQ(head.kind, "");
  EXPECT_EQ(head.time, -1.0);
  EXPECT_EQ(head.attempt, -1);
  EXPECT_EQ(event_fields(read_event<StartEvent>(line, as_it_is)),
            event_fields(StartEvent{}));
  EXPECT_EQ(read_event<CheckpointEvent>(line, as_it_is).stall, std::nullopt);
  EXPECT_EQ(read_event<EndEvent>(line, as_it_is).step, std::nullopt);
  EXPECT_EQ(read_event<SignalEvent>(line, as_it_is).file, std::nullopt);
}

TEST(Events, TextsGoThroughWhatTheReaderGives) {
  const auto shout = [](std::string_view text, size_t longest) {
    return std::string(text.substr(0, longest)) + "!";
  };
  const Json line = {{"event", "failure"}, {"message", std::string(1000, 'x')}};
  EXPECT_EQ(EventHead::read(line, shout).kind, "failure!");
  EXPECT_EQ(read_event<FailureEvent>(line, shout).message, std::string(400, 'x') + "!");
}

}  // namespace
}  // namespace longhaul::run
