#include "longhaul/monitor/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "longhaul/base/text.h"
#include "longhaul/monitor/axis.h"
#include "longhaul/monitor/html.h"
#include "longhaul/monitor/profile_table.h"
#include "longhaul/monitor/report/report_frame.h"
#include "longhaul/monitor/report/report_plots.h"
#include "longhaul/monitor/report/report_tasks.h"
#include "longhaul/monitor/set_changes.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_status.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kMostEvents = 300;
constexpr size_t kMostCheckpoints = 100;
constexpr size_t kMostSamples = 60;
constexpr size_t kParts = 220;

using Out = std::back_insert_iterator<std::string>;

void tile(std::string& out, const std::string& value, const std::string& what) {
  fmt::format_to(Out(out), "<div class=\"tile\"><b>{}</b><span>{}</span></div>",
                 escape(value), escape(what));
}

/// Says when the run began and gave its last sign, by its own records.
std::string lifetime(const Ledger& ledger) {
  if (ledger.spans.empty()) return "";
  const auto seconds = [](int64_t micros) { return 1e-6 * static_cast<double>(micros); };
  return fmt::format(" · {} to {} UTC ({})", utc(seconds(ledger.begin())),
                     utc(seconds(ledger.end())), human_duration(ledger.total_seconds()));
}

std::string header(const RunView& view) {
  const bool bad =
      view.state == run::RunStatus::kFailed || view.state == run::RunStatus::kKilled;
  const bool good =
      view.state == run::RunStatus::kDone || view.state == run::RunStatus::kTraining;
  std::string out = fmt::format("<header><h1>{}</h1><span class=\"state {}\">{}</span>",
                                escape(fs::path(view.name).filename().string()),
                                bad ? "bad" : (good ? "good" : ""), escape(view.state));
  fmt::format_to(Out(out), "<div class=\"where\">{}{}{}{}{}{} · seen {} UTC</div>",
                 escape(view.name), view.host.empty() ? "" : " · ", escape(view.host),
                 view.job.empty() ? "" : " · job ", escape(view.job),
                 lifetime(view.ledger), utc(view.now));
  if (!view.detail.empty()) {
    fmt::format_to(Out(out), "<div class=\"cause\">{}</div>", escape(view.detail));
  }
  return out + "</header>";
}

std::string tiles(const RunView& view) {
  std::string out = "<div class=\"tiles\">";
  const std::string of =
      view.last_step ? "step of " + grouped(*view.last_step) : std::string("step");
  tile(out, grouped(view.step), of);
  tile(out, figure_or_dash(view.loss, "{:.4f}"), "training loss");
  if (view.validation) {
    tile(out, figure_or_dash(view.validation->loss, "{:.4f}"),
         fmt::format("validation {} at step {}", view.validation->name,
                     grouped(view.validation->step)));
  }
  tile(out, number_label(view.tokens_per_s, Unit::Number),
       "tokens per second, last steps");
  tile(out, figure_or_dash(100.0 * view.mfu, "{:.1f}%"), "MFU, last steps");
  tile(out, figure_or_dash(100.0 * view.ledger.goodput(), "{:.1f}%"), "goodput");
  tile(out, human_duration(view.ledger.total_seconds()), "wall time");
  tile(out, grouped(view.restarts), "restarts");
  if (view.seconds_left) tile(out, human_duration(*view.seconds_left), "left");
  return out + "</div>";
}

std::string ledger_bar(const Ledger& ledger) {
  std::string svg =
      "<svg viewBox=\"0 0 1000 34\" role=\"img\" aria-label=\"Shares of the time\">";
  double x = 0.0;
  for (size_t i = 0; i < kTimeClasses; ++i) {
    const auto kind = static_cast<TimeClass>(i);
    const double width = 1000.0 * ledger.share(kind);
    if (!(width > 0.0)) continue;
    fmt::format_to(
        Out(svg),
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"0\" width=\"{:.2f}\" height=\"34\">"
        "<title>{}: {:.2f}%, {}</title></rect>",
        text_of(kind).key, x, width, text_of(kind).name, 100.0 * ledger.share(kind),
        human_duration(ledger.seconds(kind)));
    x += width;
  }
  return svg + "</svg>";
}

/// Returns a round time in seconds that fits at most twelve times into `total`.
double time_step(double total) {
  constexpr double kMinute = 60.0;
  constexpr double kHour = 3600.0;
  constexpr double kDay = 86400.0;
  for (const double step : {1.0, 2.0, 5.0, 10.0, 30.0, kMinute, 2 * kMinute, 5 * kMinute,
                            10 * kMinute, 30 * kMinute, kHour, 2 * kHour, 6 * kHour,
                            12 * kHour, kDay, 2 * kDay, 7 * kDay, 28 * kDay}) {
    if (total / step <= 12.0) return step;
  }
  return total / 10.0;
}

/// Draws the shares of the classes of time, for equal parts of the time from the first
/// start on.
std::string ledger_strip(const Ledger& ledger) {
  const auto parts = ledger_parts(ledger, kParts);
  const double width = 1000.0 / static_cast<double>(kParts);
  std::string svg =
      "<svg class=\"strip\" viewBox=\"0 0 1000 118\" shape-rendering=\"crispEdges\" "
      "role=\"img\" aria-label=\"Shares over time\">";
  for (size_t part = 0; part < parts.size(); ++part) {
    double y = 100.0;
    for (size_t i = 0; i < kTimeClasses; ++i) {
      const double height = 100.0 * parts[part][i];
      if (height < 0.05) continue;
      y -= height;
      fmt::format_to(Out(svg),
                     "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
                     "height=\"{:.2f}\"/>",
                     text_of(static_cast<TimeClass>(i)).key,
                     static_cast<double>(part) * width, y, width + 0.05, height);
    }
  }
  const double total = std::max(ledger.total_seconds(), 1e-3);
  const double step = time_step(total);
  for (double at = 0.0; at <= total; at += step) {
    const double place = at / total;
    const char* anchor = place < 0.02 ? "start" : (place > 0.94 ? "end" : "middle");
    fmt::format_to(Out(svg), "<text x=\"{:.1f}\" y=\"114\" text-anchor=\"{}\">{}</text>",
                   1000.0 * place, anchor, human_duration(at));
  }
  return svg + "</svg>";
}

std::string ledger_section(const Ledger& ledger) {
  std::string out =
      "<h2>Where the time went</h2><section class=\"card\"><h3>Goodput ledger</h3>";
  fmt::format_to(
      Out(out),
      "<p>{} from the first start over {} start{}: {} steps count, {} were redone. "
      "Goodput is compute of steps that count: {} of the whole, {} without "
      "the time between jobs.</p>",
      human_duration(ledger.total_seconds()), grouped(ledger.starts),
      ledger.starts == 1 ? "" : "s", grouped(ledger.steps_counted),
      grouped(ledger.steps_redone), figure_or_dash(100.0 * ledger.goodput(), "{:.2f}%"),
      figure_or_dash(100.0 * ledger.goodput_of_allocation(), "{:.2f}%"));
  out += ledger_bar(ledger);
  out += "<p></p>" + ledger_strip(ledger);
  std::string rows = html_row(
      "th",
      {{"class"}, {"share", "n"}, {"time", "n"}, {"seconds", "n more"}, {"what it is"}});
  for (size_t i = 0; i < kTimeClasses; ++i) {
    const auto kind = static_cast<TimeClass>(i);
    rows += html_row(
        "td",
        {{fmt::format("<span class=\"name\"><svg class=\"swatch\" viewBox=\"0 0 12 12\">"
                      "<rect class=\"{}\" width=\"12\" height=\"12\" rx=\"3\"/></svg>"
                      "{}</span>",
                      text_of(kind).key, text_of(kind).name)},
         {figure_or_dash(100.0 * ledger.share(kind), "{:.2f}%"), "n"},
         {human_duration(ledger.seconds(kind)), "n"},
         {fmt::format("{:.1f}", ledger.seconds(kind)), "n more"},
         {text_of(kind).meaning, "x"}});
  }
  rows += html_row("th", {{"all"},
                          {"100.00%", "n"},
                          {human_duration(ledger.total_seconds()), "n"},
                          {fmt::format("{:.1f}", ledger.total_seconds()), "n more"},
                          {""}});
  return out + html_table(rows) + "</section>";
}

/// Returns a card with a table that leaves `left_out` rows out.
std::string table_card(const char* title, const std::string& rows, size_t left_out,
                       const char* which) {
  std::string out =
      fmt::format("<h2>{}</h2><section class=\"card\">{}", title, html_table(rows));
  if (left_out > 0)
    out += fmt::format("<p>{} {} ones are not shown.</p>", left_out, which);
  return out + "</section>";
}

std::string checkpoint_section(RunFiles& run, const RunView& view) {
  const std::vector<CheckpointInfo> all = run.checkpoints();
  if (all.empty()) {
    return "<h2>Checkpoints</h2><section class=\"card\"><p>None yet.</p></section>";
  }
  std::string rows = html_row(
      "th", {{"step", "n"}, {"saved (UTC)"}, {"age", "n"}, {"size", "n"}, {"state"}});
  const size_t from = all.size() - std::min(all.size(), kMostCheckpoints);
  for (size_t i = all.size(); i-- > from;) {
    const CheckpointInfo& one = all[i];
    const bool dated = one.saved > 0.0;
    rows += html_row(
        "td", {{grouped(one.step), "n"},
               {dated ? utc(one.saved) : "–", "t"},
               {dated ? human_duration(view.now - one.saved) : "–", "n"},
               {one.valid ? human_bytes(one.bytes) : "–", "n"},
               {one.valid ? "whole" : escape(one.problem), one.valid ? "x" : "x warn"}});
  }
  return table_card("Checkpoints", rows, from, "older");
}

/// Shows the texts by which the model continued the prompts of [log], the newest first.
std::string sample_section(const RunFiles& run) {
  std::vector<run::SampleEvent> samples;
  for (const Event& event : run.events()) {
    if (event.kind == run::SampleEvent::kKind) {
      samples.push_back(event.as<run::SampleEvent>());
    }
  }
  if (samples.empty()) return {};
  std::string rows = html_row("th", {{"step", "n"}, {"prompt"}, {"continued"}});
  const size_t from = samples.size() - std::min(samples.size(), kMostSamples);
  for (size_t i = samples.size(); i-- > from;) {
    rows += html_row("td", {{grouped(samples[i].step), "n"},
                            {escape(samples[i].prompt), "x"},
                            {escape(samples[i].text), "x"}});
  }
  return table_card("Sample text", rows, from, "earlier");
}

std::string event_section(const RunFiles& run) {
  std::vector<const Event*> shown;
  for (const Event& event : run.events()) {
    if (is_shown(event)) shown.push_back(&event);
  }
  std::string rows = html_row("th", {{"time (UTC)"}, {"event"}, {"what"}});
  const size_t from = shown.size() - std::min(shown.size(), kMostEvents);
  for (size_t i = shown.size(); i-- > from;) {
    rows += html_row("td", {{utc(shown[i]->time), "t"},
                            {escape(shown[i]->kind)},
                            {escape(describe(*shown[i])), "x"}});
  }
  return table_card("Events", rows, from, "earlier");
}

/// Shows config.toml line by line, so that what is unfit for a page is replaced and line
/// ends stay.
std::string config_section(const RunFiles& run) {
  if (run.config_text().empty()) return {};
  std::string out = fmt::format("<details><summary>Configuration ({})</summary><pre>",
                                run::kConfigFile);
  for (const std::string_view line : lines_of(run.config_text())) {
    out += escape(line) + "\n";
  }
  return out + "</pre></details>";
}

}  // namespace

std::string report_page(RunFiles& run, const RunView& view, const std::string& program) {
  std::string out = header(view) + tiles(view);
  out += plots_section(plot_cards(run));
  out += sample_section(run);
  out += ledger_section(view.ledger) + profile_section(run);
  out += checkpoint_section(run, view) + event_section(run) + config_section(run);
  for (const std::string& note : view.notes) {
    out += "<p class=\"note\">" + escape(note) + "</p>";
  }
  return report_frame(fs::path(view.name).filename().string(), out, program, view.now);
}

Json report_json(RunFiles& run, const RunView& view) {
  Json json = to_json(view);
  Json checkpoints = Json::array();
  for (const CheckpointInfo& one : run.checkpoints()) {
    checkpoints.push_back({{"step", one.step},
                           {"saved", one.saved},
                           {"bytes", one.bytes},
                           {"valid", one.valid},
                           {"problem", one.problem}});
  }
  json["checkpoints"] = std::move(checkpoints);
  json["validation_sets"] = to_json(set_changes(run));
  json["tasks"] = to_json(task_courses(run));
  json["median_seqs_per_s"] = median_throughput(run.records());
  return json;
}

}  // namespace longhaul::monitor
