#include "longhaul/monitor/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "longhaul/base/text.h"
#include "longhaul/monitor/plain_text.h"
#include "longhaul/monitor/sparkline.h"
#include "longhaul/run/run_status.h"

namespace longhaul::monitor {
namespace {

/// A rank this much slower than the median is shown in a colour.
constexpr double kSlow = 1.2;
constexpr double kVerySlow = 1.5;

enum class Ink { Plain, Bold, Faint, Good, Warn, Bad };

constexpr std::array<const char*, 6> kInk = {"",         "\033[1m",  "\033[2m",
                                             "\033[32m", "\033[33m", "\033[31m"};
constexpr const char* kReset = "\033[0m";

std::string figure(double value, const char* form) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(form), value) : "-";
}

/// Collects lines that fit the width of a screen. Counts columns, not bytes.
class Lines {
 public:
  Lines(const ScreenSize& size, bool colour) : size_(size), colour_(colour) {}

  /// A part of a line, with its colour. A line is cut at the width.
  struct Piece {
    std::string text;
    Ink ink = Ink::Plain;
  };
  void add(const std::vector<Piece>& pieces) {
    if (full()) return;
    std::string line;
    size_t left = size_.width;
    for (const Piece& piece : pieces) {
      if (left == 0) break;
      const std::string text = cut_to_columns(piece.text, left);
      left -= std::min(left, text_columns(text));
      line += painted(text, piece.ink);
    }
    lines_.push_back(std::move(line));
  }
  /// Adds pieces like add(), but a piece that does not fit begins a further line, which
  /// is indented to the end of `label`. The piece then loses its leading blanks.
  void flow(const std::string& label, const std::vector<Piece>& pieces) {
    const size_t indent = text_columns(label);
    std::vector<Piece> line = {{label}};
    size_t used = indent;
    for (Piece piece : pieces) {
      if (line.size() > 1 && used + text_columns(piece.text) > size_.width) {
        add(line);
        line = {{std::string(indent, ' ')}};
        used = indent;
        piece.text.erase(0, piece.text.find_first_not_of(' '));
      }
      used += text_columns(piece.text);
      line.push_back(std::move(piece));
    }
    add(line);
  }
  void gap() {
    if (!lines_.empty() && !lines_.back().empty()) add({});
  }
  void title(const std::string& text) {
    gap();
    add({{text, Ink::Bold}});
  }
  bool full() const { return size_.height > 0 && lines_.size() >= size_.height; }
  /// Returns how many lines are still free; many if there is no limit.
  size_t room() const {
    return size_.height > 0 ? size_.height - lines_.size() : size_t{1000};
  }
  size_t width() const { return size_.width; }
  bool colour() const { return colour_; }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::string painted(const std::string& text, Ink ink) const {
    if (!colour_ || ink == Ink::Plain || text.empty()) return text;
    return kInk[static_cast<size_t>(ink)] + text + kReset;
  }
  ScreenSize size_;
  bool colour_;
  std::vector<std::string> lines_;
};

Ink state_ink(const RunView& view) {
  if (view.state == run::RunStatus::kFailed || view.state == run::RunStatus::kKilled)
    return Ink::Bad;
  if (view.state == run::RunStatus::kTraining || view.state == run::RunStatus::kDone)
    return Ink::Good;
  return Ink::Warn;
}

std::string ago(double seconds) { return human_duration(seconds) + " ago"; }

/// Returns a bar such as "▕████████░░░░▏", drawn in eighths of a column.
std::string bar(double share, size_t columns) {
  constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled = std::clamp(share, 0.0, 1.0) * static_cast<double>(columns);
  const auto whole = static_cast<size_t>(filled);
  const auto part = static_cast<size_t>((filled - static_cast<double>(whole)) * 8.0);
  std::string out;
  for (size_t i = 0; i < whole; ++i) out += "█";
  size_t used = whole;
  if (part > 0 && whole < columns) {
    out += kEighths[part];
    ++used;
  }
  for (; used < columns; ++used) out += "·";
  return out;
}

std::string steps_text(const RunView& view) {
  if (!view.last_step || *view.last_step <= 0) return "step " + grouped(view.step);
  return fmt::format(
      "step {} of {} ({:.1f}%)", grouped(view.step), grouped(*view.last_step),
      100.0 * static_cast<double>(view.step) / static_cast<double>(*view.last_step));
}

void draw_head(const RunView& view, Lines& lines) {
  std::string place;
  if (!view.host.empty()) place += "  on " + view.host;
  if (!view.job.empty()) place += "  job " + view.job;
  lines.flow(
      "longhaul ",
      {{view.name, Ink::Bold},
       {"  " + view.state, state_ink(view)},
       {fmt::format("  attempt {}, {}", view.attempt, counted(view.restarts, "restart")),
        Ink::Faint},
       {place, Ink::Faint}});
  if (!view.detail.empty()) lines.add({{"  " + view.detail, Ink::Bad}});
  for (const std::string& note : view.notes) lines.add({{"  note: " + note, Ink::Warn}});
}

/// Returns how long ago the newest checkpoint was saved, by the time in its manifest.
std::string saved_ago(const RunView& view) {
  const double saved = view.checkpoint->saved;
  return saved > 0.0 ? ago(view.now - saved) : "saved at an unknown time";
}

void draw_progress(const RunView& view, Lines& lines) {
  lines.gap();
  if (view.last_step && *view.last_step > 0) {
    const size_t columns = std::min<size_t>(40, lines.width() / 3);
    const double share =
        static_cast<double>(view.step) / static_cast<double>(*view.last_step);
    std::string left =
        view.seconds_left ? human_duration(*view.seconds_left) + " left" : "";
    lines.flow(
        "", {{bar(share, columns), Ink::Good}, {"  " + steps_text(view)}, {"  " + left}});
  } else {
    lines.add({{steps_text(view)}});
  }
  std::string validation;
  if (view.validation) {
    validation = fmt::format("   validation {} {} at step {}", view.validation->name,
                             figure(view.validation->loss, "{:.4f}"),
                             grouped(view.validation->step));
  }
  lines.flow("loss        ", {{figure(view.loss, "{:.5f}"), Ink::Bold},
                              {"   gradient norm " + figure(view.grad_norm, "{:.3f}")},
                              {"   lr " + figure(view.lr, "{:.3e}")},
                              {validation}});
  lines.flow("throughput  ",
             {{figure(view.tokens_per_s, "{:.0f}") + " tokens/s", Ink::Bold},
              {"   " + figure(view.seqs_per_s, "{:.2f}") + " sequences/s"},
              {"   mfu " + figure(100.0 * view.mfu, "{:.1f}%")},
              {"   " + figure(view.step_time, "{:.3f} s") + " a step"}});
  if (std::isfinite(view.expert_use)) {
    lines.flow("experts     ",
               {{figure(100.0 * view.expert_use, "{:.1f}%") + " in use", Ink::Bold},
                {" where least"},
                {"   busiest " + figure(view.expert_busiest, "{:.2f}") + " x even"},
                {"   entropy " + figure(view.router_entropy, "{:.3f}")}});
  }
  std::string last =
      std::isfinite(view.step_age) ? "last step " + ago(view.step_age) : "";
  std::string saved = "no checkpoint";
  if (view.checkpoint) {
    saved = fmt::format("step {}, {}, {}", grouped(view.checkpoint->step),
                        human_bytes(view.checkpoint->bytes), saved_ago(view));
  }
  lines.flow("checkpoint  ", {{saved}, {"   " + last, Ink::Faint}});
}

void draw_goodput(const RunView& view, Lines& lines) {
  const Ledger& ledger = view.ledger;
  if (ledger.total_micros() <= 0) return;
  std::vector<Lines::Piece> pieces = {
      {fmt::format("{:.1f}%", 100.0 * ledger.goodput()), Ink::Bold},
      {fmt::format(" of {} ", human_duration(ledger.total_seconds()))}};
  for (size_t i = 0; i < kTimeClasses; ++i) {
    const auto kind = static_cast<TimeClass>(i);
    if (ledger.share(kind) < 0.0005) continue;
    pieces.push_back(
        {fmt::format("  {} {:.1f}%", text_of(kind).name, 100.0 * ledger.share(kind)),
         Ink::Faint});
  }
  lines.flow("goodput     ", pieces);
}

/// The curve of a quantity over the run, and the texts beside it: the first, the last and
/// the extreme value.
struct Curve {
  std::string label;  ///< as wide as those of the figures above
  const Course& course;
  std::array<std::string, 3> figures;
  size_t rows = 1;

  /// Returns the columns beside the curve. A curve of one row has all texts behind it; a
  /// curve of several rows has one text behind each row.
  size_t columns_beside() const {
    size_t sum = 0;
    size_t widest = 0;
    for (const std::string& text : figures) {
      sum += 2 + text_columns(text);
      widest = std::max(widest, 2 + text_columns(text));
    }
    return text_columns(label) + (rows > 1 ? widest : sum);
  }
};

void draw_curve(const Curve& curve, size_t columns, Lines& lines) {
  const auto drawn = tall_sparkline(curve.course.values, columns, curve.rows);
  if (curve.rows > 1) lines.gap();
  for (size_t row = 0; row < drawn.size(); ++row) {
    std::string beside;
    for (size_t i = 0; i < curve.figures.size(); ++i) {
      if (drawn.size() == 1 || i == row) beside += "  " + curve.figures[i];
    }
    lines.add({{row == 0 ? curve.label : std::string(text_columns(curve.label), ' ')},
               {fit_to_columns(drawn[row], columns), Ink::Good},
               {beside}});
  }
}

/// Returns how many lines are left in the window once nodes, ranks and a few events have
/// their lines.
size_t spare_lines(const RunView& view, const Lines& lines) {
  constexpr size_t kEvents = 8;
  constexpr size_t kMostRanks = 16;
  size_t wanted = kEvents;
  if (!view.nodes.empty()) wanted += view.nodes.size() + 2;
  if (!view.ranks.empty()) wanted += std::min(view.ranks.size(), kMostRanks) + 2;
  return lines.room() - std::min(lines.room(), wanted);
}

std::string bytes_figure(double bytes) {
  return std::isfinite(bytes) ? human_bytes(bytes) : "-";
}

/// Draws loss and memory over the whole run, and returns whether the window has room for
/// that.
bool draw_curves(const RunView& view, Lines& lines) {
  constexpr size_t kLeastRoom = 12;
  constexpr size_t kLeastColumns = 16;
  constexpr size_t kMostColumns = 100;
  const Course& loss = view.loss_course;
  const Course& memory = view.memory_course;
  if (loss.values.size() < 2 || lines.room() < kLeastRoom) return false;
  const size_t spare = spare_lines(view, lines);
  std::vector<Curve> curves = {
      {"loss curve  ",
       loss,
       {"first " + figure(loss.first, "{:.4f}"), "last " + figure(loss.last, "{:.4f}"),
        "min " + figure(loss.least, "{:.4f}")},
       spare >= 12 ? size_t{5} : size_t{spare >= 6 ? 3U : 1U}}};
  if (std::isfinite(memory.most)) {
    curves.push_back(
        {"host memory ",
         memory,
         {"first " + bytes_figure(memory.first), "last " + bytes_figure(memory.last),
          "max " + bytes_figure(memory.most) + " (rank 0)"},
         size_t{spare >= 12 ? 3U : 1U}});
  }
  size_t beside = 0;
  for (const Curve& curve : curves) beside = std::max(beside, curve.columns_beside());
  if (lines.width() < beside + kLeastColumns) return false;
  const size_t columns = std::min(lines.width() - beside, kMostColumns);
  for (const Curve& curve : curves) draw_curve(curve, columns, lines);
  return true;
}

std::string memory_text(int64_t used_bytes, int64_t total_bytes) {
  const auto used = static_cast<double>(used_bytes);
  const auto total = static_cast<double>(total_bytes);
  if (!(total > 0.0)) return used > 0.0 ? human_bytes(used) : "-";
  return fmt::format("{} of {} ({:.0f}%)", human_bytes(used), human_bytes(total),
                     100.0 * used / total);
}

/// A window with fewer columns than this shows only the most needed columns of nodes and
/// ranks.
constexpr size_t kAllColumns = 76;
bool is_narrow(const Lines& lines) { return lines.width() < kAllColumns; }

std::string busy_text(double busy) {
  return busy < 0.0 ? std::string("-") : fmt::format("{:.0f}%", 100.0 * busy);
}

void draw_nodes(const RunView& view, size_t most, Lines& lines) {
  if (view.nodes.empty() || most < 3) return;
  const bool narrow = is_narrow(lines);
  const size_t name = narrow ? 10 : 20;
  lines.title(fit_to_columns("node", name) +
              (narrow ? " state     cpu   devices"
                      : " state     cpu   host memory                 devices"));
  size_t shown = 0;
  for (const run::RunStatus::Node& node : view.nodes) {
    if (++shown + 2 > most) {
      lines.add(
          {{fmt::format("... {} more", view.nodes.size() - shown + 1), Ink::Faint}});
      return;
    }
    std::string devices;
    for (const run::RunStatus::Device& device : node.devices) {
      devices += fmt::format("{} {}", device.name, busy_text(device.busy));
      if (!narrow) {
        devices += " " + memory_text(device.memory_used_bytes, device.memory_total_bytes);
      }
      devices += "  ";
    }
    std::string memory;
    if (!narrow) {
      memory = fit_to_columns(
                   memory_text(node.memory_used_bytes, node.memory_total_bytes), 27) +
               " ";
    }
    const bool up = node.state == run::RunStatus::Node::kUp ||
                    node.state == run::RunStatus::Node::kSpare;
    lines.add({{fit_to_columns(node.name, name) + " "},
               {fit_to_columns(node.state, 9) + " ", up ? Ink::Plain : Ink::Bad},
               {fit_to_columns(busy_text(node.cpu_busy), 5) + " " + memory + devices}});
  }
}

void draw_ranks(const RunView& view, size_t most, Lines& lines) {
  if (view.ranks.empty() || most < 3) return;
  const bool narrow = is_narrow(lines);
  lines.title(
      narrow ? "rank   node       phase        slowest first"
             : "rank   node                 phase           step    busy     slowest "
               "first");
  size_t shown = 0;
  for (const RankSpeed& speed : view.ranks) {
    if (++shown + 2 > most) {
      lines.add(
          {{fmt::format("... {} more", view.ranks.size() - shown + 1), Ink::Faint}});
      return;
    }
    const run::RunStatus::Rank& rank = speed.rank;
    std::string waits;
    if (!rank.waits_for.empty()) {
      waits = fmt::format("  waits {} for {}", human_duration(rank.waits_seconds),
                          rank.waits_for);
    }
    const Ink ink = speed.ratio >= kVerySlow ? Ink::Bad
                    : speed.ratio >= kSlow   ? Ink::Warn
                                             : Ink::Plain;
    const std::string step =
        narrow ? " " : fmt::format("{:>8}  {:>7.3f} s  ", rank.step, rank.busy_seconds);
    lines.add({{fmt::format("{:>4}   {} {} {}", rank.rank,
                            fit_to_columns(rank.node, narrow ? 10 : 20),
                            fit_to_columns(rank.phase, 11), step)},
               {fmt::format("x{:.2f} {}", speed.ratio, bar(speed.ratio / 2.0, 10)), ink},
               {waits, Ink::Faint}});
  }
}

Ink event_ink(const std::string& kind) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> kinds) {
    return std::ranges::find(kinds, kind) != kinds.end();
  };
  if (is_one_of({run::FailureEvent::kKind, run::kBadSaveEvent, run::FaultEvent::kKind,
                 run::kHangEvent, run::kCorruptionEvent})) {
    return Ink::Bad;
  }
  const bool good = is_one_of({run::CheckpointEvent::kKind, run::kMirroredEvent,
                               run::StartEvent::kKind, run::EndEvent::kKind});
  return good ? Ink::Plain : Ink::Warn;
}

void draw_events(const RunView& view, const std::vector<Event>& events, Lines& lines) {
  if (lines.room() < 3) return;
  lines.title("events");
  const size_t most = std::min<size_t>(lines.room(), 12);
  std::vector<const Event*> shown;
  for (size_t i = events.size(); i-- > 0 && shown.size() < most;) {
    if (is_shown(events[i])) shown.push_back(&events[i]);
  }
  for (const Event* event : shown) {
    lines.add({{fit_to_columns(ago(view.now - event->time), 12, true) + "  ", Ink::Faint},
               {fit_to_columns(event->kind, 17) + " ", event_ink(event->kind)},
               {describe(*event)}});
  }
  if (shown.empty()) lines.add({{"none yet", Ink::Faint}});
}

}  // namespace

std::vector<std::string> draw_screen(const RunView& view,
                                     const std::vector<Event>& events,
                                     const ScreenSize& size, bool colour) {
  Lines lines(size, colour);
  draw_head(view, lines);
  draw_progress(view, lines);
  draw_goodput(view, lines);
  // The events keep at least seven lines, or five below curves; nodes and ranks share
  // what is left.
  const size_t kept = draw_curves(view, lines) ? 7 : 9;
  const size_t room = lines.room() > kept ? lines.room() - kept : 0;
  draw_nodes(view, std::min(view.nodes.size() + 2, room / 2), lines);
  const size_t left = lines.room() > kept ? lines.room() - kept : 0;
  draw_ranks(view, std::min<size_t>(left, 18), lines);
  draw_events(view, events, lines);
  return lines.take();
}

std::string status_line(const RunView& view) {
  std::string line = fmt::format("{} {}, loss {}", view.state, steps_text(view),
                                 figure(view.loss, "{:.5f}"));
  line += fmt::format(", {} tokens/s, mfu {}", figure(view.tokens_per_s, "{:.0f}"),
                      figure(100.0 * view.mfu, "{:.1f}%"));
  if (view.seconds_left) line += ", " + human_duration(*view.seconds_left) + " left";
  if (view.checkpoint) {
    line += fmt::format(", checkpoint step {} {}", grouped(view.checkpoint->step),
                        saved_ago(view));
  }
  line += ", goodput " + figure(100.0 * view.ledger.goodput(), "{:.1f}%");
  if (view.restarts > 0) line += ", " + counted(view.restarts, "restart");
  if (!view.detail.empty()) line += ": " + view.detail;
  return line;
}

}  // namespace longhaul::monitor
