#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/objects/access.h"

namespace longhaul::apps {

/// Throws ConfigError, with the same text on every rank, if the ranks were started
/// with different settings: it names the ranks and the first key that differs with its
/// values. Collective.
void check_same_config(comm::Communicator& world, const RunConfig& config);

/// Says why a rank ends, in one line of standard error. A text that every rank has is
/// said once, by rank 0; else the lowest rank with a text says it, with its number.
class FailureReport {
 public:
  /// Makes a group of its own, so that failing ranks can meet while others are in the
  /// middle of a collective. `say` prints a line. Collective.
  FailureReport(comm::Communicator& world,
                std::function<void(const std::string& line)> say,
                double patience_seconds = 2.0);

  /// Reports an error. Waits for the other ranks as long as the patience lasts; ranks
  /// that do not fail as well never come. This rank reports at once, without a meeting,
  /// an error of communication or an error that leaves operations under way: ranks that
  /// wait for this one get errors of their own.
  void report(const Error& error);

 private:
  struct Meeting {
    bool all_came = false;
    bool speaks = true;   ///< no lower rank has the same text
    bool shared = false;  ///< every rank has it
  };
  Meeting meet(const std::string& text);
  bool ends_in_time(comm::Work& work) const;

  std::unique_ptr<comm::Communicator> group_;
  std::function<void(const std::string&)> say_;
  double patience_seconds_;
};

/// All ranks of a start.
using World = std::shared_ptr<comm::Communicator>;

/// Runs `work` on every rank and returns its result, the exit code. Where `work` fails on
/// a rank, `on_failure` is called there, a FailureReport says the error by `say`, all
/// ranks end, and the result is the error's exit code. Collective.
int run_ranks(const World& world, const std::function<void(const std::string& line)>& say,
              const std::function<int()>& work,
              const std::function<void(const Error&)>& on_failure = {});

/// Runs a verb on the ranks that a launcher started, else in this process alone, and
/// returns 0, or the error's exit code if it fails on any rank. The error names the
/// addresses of the copies that `objects` has made. A rank that waits for others longer
/// than `deadline_seconds` fails. The default is a day, since ranks may read or write
/// large files.
int run_together(const objects::Access& objects,
                 const std::function<void(const World& world)>& work,
                 double deadline_seconds = 24.0 * 3600.0);

/// Returns why the job ends, for CommOptions::job_ends; nothing while it goes on. When a
/// rank dies or aborts, mpirun ends all ranks with SIGTERM, and with SIGKILL a second
/// later. SIGTERM from anybody else asks for a save and an end.
std::string mpirun_ends_job();

}  // namespace longhaul::apps
