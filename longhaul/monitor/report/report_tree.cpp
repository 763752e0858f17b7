#include "longhaul/monitor/report/report_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/html.h"
#include "longhaul/run/run_past.h"

namespace longhaul::monitor {
namespace {

constexpr double kWidth = 1000.0;
constexpr double kLeft = 12.0;
constexpr double kRow = 34.0;

/// Returns the identity that a run's directory tells; empty: none that can be read.
std::string identity_of(const RunFiles& files) {
  try {
    return run::read_run_identity(files.dir()).value_or("");
  } catch (const Error&) {
    return {};
  }
}

/// A run as a line. A place on the page's axis is a number of steps since the first
/// ancestor began.
struct Line {
  size_t run = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

/// Lays out the runs: each below its parent, and the children of one parent by the steps
/// at which they leave it.
class Tree {
 public:
  Tree(const std::vector<ReportRun>& runs,
       const std::vector<std::optional<Parent>>& parents)
      : runs_(runs), parents_(parents), done_(runs.size()) {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!parent(i)) add(i, 0, 0);
    }
    // Runs that name each other in a circle have no first one.
    for (size_t i = 0; i < runs.size(); ++i) add(i, 0, 0);
  }
  const std::vector<Line>& lines() const { return lines_; }
  std::optional<size_t> parent(size_t run) const {
    return parents_[run] ? parents_[run]->run : std::nullopt;
  }

 private:
  /// Adds a run whose step 0 is at `zero`, and which begins at step `first`.
  void add(size_t run, int64_t zero, int64_t first) {
    if (done_[run]) return;
    done_[run] = true;
    lines_.push_back({run, zero + first, zero + std::max(first, runs_[run].view.step)});
    std::vector<size_t> children;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (parent(i) == run) children.push_back(i);
    }
    const auto left_at = [&](size_t i) { return parents_[i]->branch.step; };
    std::ranges::stable_sort(children, {}, left_at);
    for (const size_t child : children) {
      // A run that took only the weights counts its steps anew.
      const bool anew = parents_[child]->branch.anew();
      add(child, zero + (anew ? left_at(child) : 0), anew ? 0 : left_at(child));
    }
  }

  const std::vector<ReportRun>& runs_;
  const std::vector<std::optional<Parent>>& parents_;
  std::vector<bool> done_;
  std::vector<Line> lines_;
};

}  // namespace

std::vector<std::optional<Parent>> parents_of(const std::vector<ReportRun>& runs) {
  std::vector<std::string> identities;
  for (const ReportRun& run : runs) identities.push_back(identity_of(*run.files));
  std::vector<std::optional<Parent>> parents(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const Event& event : runs[i].files->events()) {
      if (event.kind != run::BranchEvent::kKind) continue;
      Parent parent{event.as<run::BranchEvent>(), {}};
      const auto found = std::ranges::find(identities, parent.branch.run);
      if (!parent.branch.run.empty() && found != identities.end()) {
        parent.run = static_cast<size_t>(found - identities.begin());
      }
      parents[i] = std::move(parent);
    }
  }
  return parents;
}

std::string tree_card(const std::vector<ReportRun>& runs,
                      const std::vector<std::string>& styles) {
  const std::vector<std::optional<Parent>> parents = parents_of(runs);
  const Tree tree(runs, parents);
  const auto begun_elsewhere = [&](size_t i) { return tree.parent(i).has_value(); };
  if (std::ranges::none_of(tree.lines(), begun_elsewhere, &Line::run)) return {};
  const int64_t most =
      std::max<int64_t>(1, std::ranges::max(tree.lines(), {}, &Line::end).end);
  const auto x = [&](int64_t at) {
    return kLeft +
           (kWidth - 2 * kLeft) * static_cast<double>(at) / static_cast<double>(most);
  };
  std::string drawn;
  std::vector<double> y_of(runs.size());
  double y = 0.0;
  for (const Line& line : tree.lines()) {
    y_of[line.run] = y += kRow;
    std::string label = runs[line.run].name;
    if (const auto parent = tree.parent(line.run)) {
      const run::BranchEvent& branch = parents[line.run]->branch;
      label += fmt::format(" from {} at step {}{}", runs[*parent].name,
                           grouped(branch.step), branch.anew() ? ", its weights" : "");
      drawn += fmt::format(R"(<path class="line {}" d="M{:.1f} {:.1f}V{:.1f}"/>)",
                           styles[line.run], x(line.begin), y_of[*parent], y);
    }
    drawn += fmt::format(R"(<path class="line {}" d="M{:.1f} {:.1f}H{:.1f}"/>)",
                         styles[line.run], x(line.begin), y, x(line.end));
    const bool right = x(line.begin) > kWidth / 2;
    drawn += fmt::format(R"(<text x="{:.1f}" y="{:.1f}"{}>{}</text>)",
                         x(line.begin) + (right ? -6 : 6), y - 6,
                         right ? R"( text-anchor="end")" : "", escape(label));
  }
  return fmt::format(
      R"(<section class="card"><h3>Which run began from which</h3><svg viewBox="0 0 {:.0f} )"
      R"({:.0f}" role="img" aria-label="Which run began from which">{}</svg></section>)",
      kWidth, y + 10, drawn);
}

}  // namespace longhaul::monitor
