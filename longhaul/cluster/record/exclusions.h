#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/cluster/health/health.h"
#include "longhaul/system/log.h"

namespace longhaul::cluster {

/// Why a node is left out, by what lets it in again.
enum class ExclusionKind {
  Person,   ///< somebody wrote it into the file: it stays until somebody takes it out
  Health,   ///< a health check failed: until one passes
  Silence,  ///< it did not answer: until it answers and a health check passes
  Faults,   ///< faults in a row: until it has expired and a health check passes
};
const char* exclusion_name(ExclusionKind kind);

/// A verdict of this age has expired: Slurm may give the node again, and it is used when
/// a health check passes.
inline constexpr double kExclusionSeconds = 24 * 3600.0;

/// Nodes that are not to be used: a file that outlives the job.
struct ExcludedNode {
  std::string node;
  double since = 0.0;
  std::string cause;
  ExclusionKind kind = ExclusionKind::Person;
  /// It was put in again after a verdict of this kind: now it stays out until it expires.
  bool again = false;
};
std::vector<ExcludedNode> read_excluded(const fs::path& path);
void write_excluded(const fs::path& path, const std::vector<ExcludedNode>& nodes);

bool has_expired(const ExcludedNode& node, double now);
/// Whose verdicts a health check that passes now ends.
enum class Retest {
  Usual,
  LastResort,  ///< all but a person's: the queue has no other nodes to give
};
bool may_be_tested(const ExcludedNode& node, double now, Retest retest = Retest::Usual);

/// The nodes that a run leaves out, as its supervisor keeps them: excluded_nodes.json,
/// and control/readmitted_nodes.json with those that were put in again.
class Exclusions {
 public:
  /// InputError for a file that is no such list.
  explicit Exclusions(const fs::path& run_dir);

  const std::vector<ExcludedNode>& nodes() const { return nodes_; }
  std::vector<std::string> testable(double now, Retest retest = Retest::Usual) const;
  /// A person, or a drill, may have put nodes in or taken some out. Where the file cannot
  /// be read the nodes that were known stay out.
  void read_again(Logger& log);
  /// False where it is left out already; a verdict that had expired is renewed.
  bool add(const std::string& node, ExclusionKind kind, const std::string& cause,
           double now, Logger& log);
  /// Puts in again the nodes that may be tested and whose report shows nothing of their
  /// own: what all see alike, the room on a file system, says nothing of them.
  std::vector<ExcludedNode> readmit(const std::vector<HealthReport>& reports, double now,
                                    Logger& log, Retest retest = Retest::Usual);

 private:
  bool was_readmitted(const std::string& node, ExclusionKind kind, Logger& log) const;
  fs::path path_;
  fs::path readmitted_path_;
  std::vector<ExcludedNode> nodes_;
};

}  // namespace longhaul::cluster
