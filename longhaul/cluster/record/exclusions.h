#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/cluster/health/health.h"
#include "longhaul/cluster/record/record_file.h"
#include "longhaul/system/log.h"

namespace longhaul::cluster {

/// Why a node is left out, which decides what lets it in again.
enum class ExclusionKind {
  Person,   ///< a person wrote the entry; only a person removes it
  Health,   ///< a health check failed; it ends when a health check passes
  Silence,  ///< the node did not answer; it ends when a health check passes
  Faults,   ///< faults in a row; it ends when it has expired and a health check passes
};
const char* exclusion_name(ExclusionKind kind);

/// An exclusion of this age has expired: Slurm may give the node again, and the node is
/// used when a health check passes.
inline constexpr double kExclusionSeconds = 24 * 3600.0;

/// A node that is not to be used. The list of excluded nodes is a file that outlives the
/// job.
struct ExcludedNode {
  std::string node;
  double since = 0.0;
  std::string cause;
  ExclusionKind kind = ExclusionKind::Person;
  /// The node was used again after an exclusion of this kind, so that this second
  /// exclusion ends only when it has expired.
  bool again = false;
};
std::vector<ExcludedNode> read_excluded(const fs::path& path);
void write_excluded(const fs::path& path, const std::vector<ExcludedNode>& nodes);

bool has_expired(const ExcludedNode& node, double now);
/// Says which exclusions end when a health check passes now.
enum class Retest {
  Usual,
  LastResort,  ///< all exclusions but a person's: the queue has no other nodes to give
};
bool may_be_tested(const ExcludedNode& node, double now, Retest retest = Retest::Usual);

/// The nodes that a run leaves out, as its supervisor keeps them in excluded_nodes.json.
/// control/readmitted_nodes.json has the nodes that were readmitted.
class Exclusions {
 public:
  /// Throws InputError for a file that is no such list.
  explicit Exclusions(const fs::path& run_dir);

  const std::vector<ExcludedNode>& nodes() const { return nodes_; }
  std::vector<std::string> testable(double now, Retest retest = Retest::Usual) const;
  /// Reads the file again: a person or a drill may have changed it. If the file cannot be
  /// read, the nodes that are known to be left out stay out.
  void read_again(system::Logger& log);
  /// Leaves a node out. Returns false if the node is left out already, unless that
  /// exclusion had expired.
  bool add(const std::string& node, ExclusionKind kind, const std::string& cause,
           double now, system::Logger& log);
  /// Readmits and returns the nodes that may be tested and whose report shows no failure
  /// of the node itself. The room on a file system, which all nodes see alike, says
  /// nothing of a node.
  std::vector<ExcludedNode> readmit(const std::vector<HealthReport>& reports, double now,
                                    system::Logger& log, Retest retest = Retest::Usual);

 private:
  bool was_readmitted(const std::string& node, ExclusionKind kind,
                      system::Logger& log) const;
  fs::path path_;
  RecordFile readmitted_file_;
  std::vector<ExcludedNode> nodes_;
};

}  // namespace longhaul::cluster
