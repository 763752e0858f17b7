#include "longhaul/monitor/run_files.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <tuple>
#include <utility>

#include "longhaul/monitor/run_view.h"
#include "longhaul/monitor/screen.h"
#include "longhaul/monitor/set_changes.h"
#include "longhaul/run/run_past.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::monitor {
namespace {

std::string step_line(int64_t step, int attempt, double loss, double time) {
  return Json{{"step", step},
              {"attempt", attempt},
              {"loss", loss},
              {"grad_norm", 1.0},
              {"lr", 0.1},
              {"seqs_per_s", 8.0 + static_cast<double>(step)},
              {"tokens_per_s", 256.0},
              {"step_time_s", 0.5},
              {"data_time_s", 0.1},
              {"mfu", 0.4},
              {"time", time}}
             .dump() +
         "\n";
}

void append(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::app) << text;
}

std::vector<double> losses(const RunFiles& run) {
  std::vector<double> found;
  for (const size_t at : run.records().counted()) {
    found.push_back(run.records().all()[at].loss);
  }
  return found;
}

TEST(RunFiles, CountsTheNewestAttemptOfEachStep) {
  const TestDirectory dir;
  for (int step = 1; step <= 5; ++step) {
    append(dir / "metrics.jsonl", step_line(step, 1, step, 100 + step));
  }
  for (int step = 3; step <= 4; ++step) {
    append(dir / "metrics.jsonl", step_line(step, 2, 10 * step, 200 + step));
  }
  append(dir / "metrics.jsonl", step_line(5, 1, 99, 204));  // a start that was replaced
  RunFiles run(dir.path());
  EXPECT_TRUE(run.refresh());
  EXPECT_EQ(losses(run), (std::vector<double>{1, 2, 30, 40}));
  EXPECT_EQ(run.records().all().size(), 8U);
  EXPECT_FALSE(run.refresh());
}

TEST(RunFiles, AStartTakesBackWhatLiesAboveItsCheckpoint) {
  const TestDirectory dir;
  for (int step = 1; step <= 5; ++step) {
    append(dir / "metrics.jsonl", step_line(step, 1, step, 100 + step));
  }
  append(dir / "events.jsonl",
         R"({"event":"start","attempt":2,"step":2,"time":150,"last_step":9})"
         "\n");
  RunFiles run(dir.path());
  run.refresh();
  EXPECT_EQ(losses(run), (std::vector<double>{1, 2}));
  EXPECT_EQ(run.last_step(), 9);
  append(dir / "events.jsonl",
         R"({"event":"end_decided","step":4,"time":160,"last_step":7})"
         "\n");
  run.refresh();
  EXPECT_EQ(run.last_step(), 7);
}

TEST(RunFiles, ReadsOnlyWholeLinesAndEachOnce) {
  const TestDirectory dir;
  const std::string line = step_line(2, 1, 7.0, 100.0);
  append(dir / "metrics.jsonl", step_line(1, 1, 8.0, 99.0) + line.substr(0, 20));
  RunFiles run(dir.path());
  run.refresh();
  EXPECT_EQ(losses(run), (std::vector<double>{8}));
  append(dir / "metrics.jsonl", line.substr(20));
  EXPECT_TRUE(run.refresh());
  EXPECT_EQ(losses(run), (std::vector<double>{8, 7}));
  EXPECT_EQ(run.records().unreadable(), 0);
}

TEST(RunFiles, ReadsAFileThatReplacedTheOldOneFromItsStart) {
  const TestDirectory dir;
  append(dir / "metrics.jsonl", step_line(1, 1, 8.0, 99.0) + step_line(2, 1, 7.0, 99.5));
  RunFiles run(dir.path());
  run.refresh();
  write_file(dir / "metrics.jsonl", step_line(1, 1, 5.0, 99.0));
  EXPECT_TRUE(run.refresh());
  EXPECT_EQ(losses(run), (std::vector<double>{5}));
}

TEST(RunFiles, NotesWhatCannotBeReadAndGoesOn) {
  const TestDirectory dir;
  append(dir / "metrics.jsonl",
         "garbage\n{\"step\":-1,\"grad_norm\":1,\"time\":1}\n[1]\n" +
             std::string(100, '[') + "\n{\"step\":1,\"grad_norm\":1,\"time\":1e300}\n" +
             std::string(LineTail::kLongestLine + 5, 'x') + "\n" +
             step_line(1, 1, 3.0, 100.0) +
             R"({"step":2,"attempt":1,"loss":null,"grad_norm":null,"time":101})"
             "\n");
  append(dir / "events.jsonl", "{}\n\xff\xfe\n{\"event\":\"x\",\"time\":5}\n");
  write_file(dir / "status.json", "{\"state\": 5, \"nodes\": {}, \"ranks\": [1, {}]}");
  write_file(dir / "config.toml", "what = ");
  write_file(dir / "run.lock", "{}");
  RunFiles run(dir.path());
  run.refresh();
  ASSERT_EQ(run.records().counted().size(), 2U);
  EXPECT_TRUE(std::isnan(run.records().counted_at(1).loss));
  EXPECT_EQ(run.records().unreadable(), 5);
  EXPECT_EQ(run.events().size(), 1U);
  EXPECT_EQ(run.status()->ranks.size(), 1U);
  std::string notes;
  for (const std::string& note : run.notes()) notes += note + "\n";
  for (const char* part :
       {"5 lines of metrics.jsonl cannot", "1 lines of metrics.jsonl are longer",
        "2 lines of events.jsonl", "config.toml", "run.lock"}) {
    EXPECT_HAS(notes, part);
  }
}

TEST(RunFiles, RefusesWhatIsNoRun) {
  const TestDirectory dir;
  EXPECT_HAS(message_of<InputError>([&] { RunFiles run(dir.path()); }),
             "holds nothing of a run");
  EXPECT_HAS(message_of<InputError>([&] { RunFiles run(dir / "absent"); }),
             "is no directory");
  write_file(dir / "run.toml", "[run]\n");
  EXPECT_HAS(message_of<InputError>([&] { RunFiles run(dir / "run.toml"); }),
             "run.toml is a run file; give the directory that run.dir in it names");
}

TEST(RunFiles, NamesTheNewestWholeCheckpoint) {
  const TestDirectory dir;
  write_file(dir / "metrics.jsonl", "");
  for (const auto& [step, text] : {std::pair{3, "12345"}, std::pair{6, "123"}}) {
    const fs::path at = dir.path() / "checkpoints" / fmt::format("step_{:08}", step);
    fs::create_directories(at);
    write_file(at / "data", text);
    write_file(
        at / "manifest.json",
        fmt::format(R"({{"step":{},"ranks":[{{"name":"data","size":5}}]}})", step));
  }
  fs::create_directories(dir.path() / "checkpoints" / "step_00000009");
  RunFiles run(dir.path());
  const auto all = run.checkpoints();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_TRUE(all[0].valid);
  EXPECT_EQ(all[0].bytes, 5.0);
  EXPECT_HAS(all[1].problem, "data has 3 bytes instead of 5");
  EXPECT_HAS(all[2].problem, "no manifest");
  EXPECT_EQ(run.newest_checkpoint()->step, 3);
  // The view has to say that step 3 was not the newest checkpoint: step 12 is gone.
  run::RunPast past = run::RunPast::begin();
  past.newest = 12;
  past.write(dir.path());
  std::string notes;
  for (const std::string& note : make_view(run, 1000.0).notes) notes += note + "\n";
  EXPECT_HAS(notes, "the checkpoint of step 6 is not whole: data has 3 bytes");
  EXPECT_HAS(notes, "the checkpoint of step 9 is not whole: no manifest");
  EXPECT_HAS(notes, "the checkpoint of step 12 was committed and is not there any more");
}

TEST(RunFiles, ACheckpointsTimeIsOfItsManifestAndNotOfTheFile) {
  const TestDirectory dir;
  write_file(dir / "metrics.jsonl", "");
  const std::vector<std::string> texts = {R"("2023-11-14T22:13:20Z")", R"("yesterday")",
                                          "7"};
  for (size_t i = 0; i < texts.size(); ++i) {
    const fs::path at = dir.path() / "checkpoints" / fmt::format("step_{:08}", i);
    fs::create_directories(at);
    write_file(at / "manifest.json",
               fmt::format(R"({{"step":{},"saved_at":{}}})", i, texts[i]));
  }
  RunFiles run(dir.path());
  const auto all = run.checkpoints();
  ASSERT_EQ(all.size(), texts.size());
  EXPECT_EQ(all[0].saved, 1'700'000'000.0);
  EXPECT_EQ(all[1].saved, 0.0);
  EXPECT_EQ(all[2].saved, 0.0);
  // No record says when the newest checkpoint was saved, so the view tells no age.
  const RunView view = make_view(run, 1'700'000'060.0);
  EXPECT_TRUE(to_json(view)["checkpoint"]["age_seconds"].is_null());
  EXPECT_HAS(status_line(view), "checkpoint step 2 saved at an unknown time");
}

TEST(RunFiles, AManifestCannotNameFilesElsewhere) {
  const TestDirectory dir;
  write_file(dir / "metrics.jsonl", "");
  const fs::path at = dir.path() / "checkpoints" / "step_00000001";
  fs::create_directories(at);
  write_file(at / "manifest.json", R"({"step":1,"a":{"name":"../../x","size":0}})");
  RunFiles run(dir.path());
  EXPECT_FALSE(run.checkpoints()[0].valid);
}

TEST(RunView, AValidationOfAStepThatWasTakenBackCountsNoMore) {
  const TestDirectory dir;
  const auto steps = [&](int64_t from, int64_t to, int attempt, double loss) {
    for (int64_t step = from; step <= to; ++step) {
      append(dir / "metrics.jsonl",
             step_line(step, attempt, loss, 100.0 * attempt + static_cast<double>(step)));
      if (step % 2 != 0) continue;
      append(dir / "metrics.jsonl", Json{{"step", step},
                                         {"attempt", attempt},
                                         {"validation", "wiki"},
                                         {"loss", loss},
                                         {"seconds", 0.1},
                                         {"time", 100.0 * attempt + 50.0}}
                                            .dump() +
                                        "\n");
    }
  };
  steps(1, 8, 1, 3.0);
  append(dir / "events.jsonl",
         R"({"event":"start","attempt":2,"step":4,"last_step":9,"time":200})"
         "\n");
  RunFiles run(dir.path());
  run.refresh();
  const auto losses = [&] { return set_changes(run).at(0).losses; };
  EXPECT_EQ(losses(), (std::map<int64_t, double>{{2, 3.0}, {4, 3.0}}));
  steps(5, 6, 2, 2.0);
  run.refresh();
  EXPECT_EQ(losses(), (std::map<int64_t, double>{{2, 3.0}, {4, 3.0}, {6, 2.0}}));
  EXPECT_EQ(make_view(run, 1000.0).validation->step, 6);
  // Validations that were taken back stay in the list, since their time still counts.
  EXPECT_EQ(run.records().validations().size(), 5U);
}

TEST(RunView, SaysWhatTheLastEventMeantWhereNobodyLives) {
  const auto state = [](const std::string& event) {
    const TestDirectory dir;
    append(dir / "metrics.jsonl", step_line(1, 1, 3.0, 100.0));
    append(dir / "events.jsonl", R"({"event":"start","attempt":1,"step":0,"time":99})"
                                 "\n" +
                                     event + "\n");
    RunFiles run(dir.path());
    run.refresh();
    return make_view(run, 1000.0).state;
  };
  EXPECT_EQ(state(R"({"event":"end","signal":0,"time":101,"attempt":1})"), "done");
  EXPECT_EQ(state(R"({"event":"end","signal":15,"time":101,"attempt":1})"), "stopped");
  EXPECT_EQ(state(R"({"event":"failure","message":"x","time":101,"attempt":1})"),
            "failed");
}

TEST(RunView, TellsAStopByTheFileFromOneByASignal) {
  const auto look = [](const std::string& by, int signal) {
    const TestDirectory dir;
    append(dir / "metrics.jsonl", step_line(1, 1, 3.0, 100.0));
    append(dir / "events.jsonl", Json{{"event", "end"},
                                      {"signal", signal},
                                      {"stopped_by", by},
                                      {"attempt", 1},
                                      {"time", 101}}
                                         .dump() +
                                     "\n");
    RunFiles run(dir.path());
    run.refresh();
    const RunView view = make_view(run, 1000.0);
    return view.state + (view.on_request ? " on request" : "");
  };
  EXPECT_EQ(look("the file STOP", 0), "stopped on request");
  EXPECT_EQ(look("SIGTERM", 15), "stopped");
  EXPECT_EQ(look("", 0), "done");
}

TEST(RunView, ALaterStartWithoutASupervisorCountsMoreThanAnEarlierOnesLastWord) {
  const TestDirectory dir;
  append(dir / "metrics.jsonl", step_line(1, 1, 3.0, 100.0));
  write_file(dir / "status.json", R"({"state":"stopped","updated":102,"restarts":0})");
  append(
      dir / "events.jsonl",
      R"({"event":"end","signal":0,"stopped_by":"the file STOP","time":101,"attempt":1})"
      "\n");
  {
    RunFiles run(dir.path());
    run.refresh();
    const RunView view = make_view(run, 1000.0);
    EXPECT_EQ(view.state, "stopped");
    EXPECT_TRUE(view.on_request);
  }
  append(dir / "events.jsonl",
         R"({"event":"start","attempt":2,"step":1,"last_step":2,"time":200})"
         "\n"
         R"({"event":"end","signal":0,"stopped_by":"","step":2,"time":210,"attempt":2})"
         "\n");
  RunFiles run(dir.path());
  run.refresh();
  const RunView view = make_view(run, 1000.0);
  EXPECT_EQ(view.state, "done");
  EXPECT_TRUE(view.ended);
}

TEST(RunView, StartsThatWereRefusedLeaveTheFiguresOfARunThatIsDone) {
  const TestDirectory dir;
  const auto tell = [&](const Json& event) {
    append(dir / "events.jsonl", event.dump() + "\n");
  };
  const auto look = [&] {
    RunFiles run(dir.path());
    run.refresh();
    const RunView view = make_view(run, 5000.0);
    Json json = to_json(view);
    json.erase("notes");
    return std::tuple(json.dump(), view.notes, run.events().size());
  };
  append(dir / "metrics.jsonl", step_line(1, 1, 3.0, 100.0));
  write_file(dir / "status.json", R"({"state":"done","updated":103,"restarts":0})");
  tell({{"event", "supervisor_start"}, {"job", "7"}, {"time", 95}});
  tell({{"event", "start"},
        {"attempt", 1},
        {"step", 0},
        {"last_step", 1},
        {"job", "7"},
        {"time", 98}});
  tell({{"event", "end"}, {"attempt", 1}, {"step", 1}, {"signal", 0}, {"time", 101}});
  tell({{"event", "supervisor_end"}, {"exit", 0}, {"time", 102}});
  const auto [before, none, events] = look();
  EXPECT_HAS(before, R"("state":"done")");
  EXPECT_EQ(events, 4U);
  EXPECT_TRUE(none.empty());

  tell({{"event", "refused_start"}, {"message", "[config] tp = 2"}, {"time", 900}});
  auto [after, notes, told] = look();
  EXPECT_EQ(notes.at(0), "a start ended before its first step: [config] tp = 2");
  EXPECT_EQ(told, 5U);
  EXPECT_EQ(after, before);

  // There are three supervisors. The ranks of the first refused, those of the second
  // never began, and the third found nothing to do.
  const Json found_nothing = {
      {"event", "refused_start"}, {"message", "nothing to do"}, {"time", 3001}};
  const Json lines[] = {
      {{"event", "refused_start"}, {"message", "[data] chat"}, {"time", 1001}},
      {{"event", "fault"}, {"kind", "settings"}, {"cause", "[x] y"}, {"time", 2001}},
      found_nothing};
  for (const Json& line : lines) {
    tell({{"event", "supervisor_start"}, {"job", "8"}, {"time", 1000}});
    tell({{"event", "health"}, {"node", "n1"}, {"time", 1001}});
    tell(line);
    tell({{"event", "supervisor_end"}, {"exit", 78}, {"time", 3002}});
  }
  std::tie(after, notes, told) = look();
  EXPECT_EQ(told, 8U);  // each refusal has one line
  EXPECT_EQ(after, before);
  EXPECT_EQ(notes.at(0), "a start ended before its first step: nothing to do");

  // All events of a supervisor are kept if one of its starts has trained.
  tell({{"event", "supervisor_start"}, {"job", "9"}, {"time", 4000}});
  tell({{"event", "start"}, {"attempt", 2}, {"step", 1}, {"time", 4001}});
  tell({{"event", "fault"}, {"kind", "settings"}, {"cause", "[x] y"}, {"time", 4002}});
  tell({{"event", "supervisor_end"}, {"exit", 78}, {"time", 4003}});
  std::tie(after, notes, told) = look();
  EXPECT_EQ(told, 12U);
  EXPECT_HAS(after, R"("restarts":1)");
  EXPECT_TRUE(notes.empty());
}

TEST(RunView, ARunWhoseOnlyStartWasRefusedHasFailed) {
  const TestDirectory dir;
  write_file(dir / "events.jsonl",
             R"({"event":"refused_start","message":"[config] x","time":100})"
             "\n");
  RunFiles run(dir.path());
  run.refresh();
  const RunView view = make_view(run, 200.0);
  EXPECT_EQ(view.state, "failed");
  EXPECT_EQ(view.detail, "[config] x");
  EXPECT_EQ(view.ledger.starts, 0);
}

TEST(RunView, TrustsAFreshStatusAndNotAnOldOne) {
  const TestDirectory dir;
  append(dir / "metrics.jsonl", step_line(1, 1, 3.0, 100.0));
  write_file(dir / "status.json",
             R"({"state":"restarting","updated":500,"restarts":3,"cause":"rank 3 died",
                 "ranks":[{"rank":0,"busy_seconds":1.0},{"rank":1,"busy_seconds":1.0},
                          {"rank":2,"busy_seconds":2.5}]})");
  RunFiles run(dir.path());
  run.refresh();
  const RunView fresh = make_view(run, 501.0);
  EXPECT_EQ(fresh.state, "restarting");
  EXPECT_TRUE(fresh.alive);
  EXPECT_EQ(fresh.ranks[0].rank.rank, 2);
  EXPECT_DOUBLE_EQ(fresh.ranks[0].ratio, 2.5);
  const RunView old = make_view(run, 900.0);
  EXPECT_FALSE(old.alive);
  EXPECT_EQ(old.notes.size(), 1U);
}

}  // namespace
}  // namespace longhaul::monitor
