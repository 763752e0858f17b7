#pragma once

namespace longhaul::cluster {

/// Patience of an agent with its supervisor, in seconds.
struct SuccessionRules {
  /// After this silence a supervisor, which says something every second, counts as
  /// frozen.
  double silence = 12.0;
  /// Further seconds for a supervisor whose connection stands. The agent on its machine
  /// can end it, and its batch script then starts another supervisor, which costs less
  /// than a stand-in.
  double frozen = 10.0;
  /// Seconds between the turns of two successors.
  double turn = 5.0;
  /// All successors from this place on share one turn. Only one of them can take the
  /// lease.
  int last_turn = 7;
  /// A batch script that lives starts a supervisor again within this time.
  double script = 2.0;
  /// After a supervisor ended normally, its batch script ends the job or starts another
  /// supervisor within this time.
  double script_end = 60.0;
  /// If the storage does not say for this time who has the lease, the job is requeued.
  double unknown = 300.0;
};

enum class LeaseState {
  Unknown,   ///< the storage does not answer
  Released,  ///< the supervisor ended in order, or there was no supervisor
  Held,
  Expired,  ///< the holder of the lease is dead, or has not renewed it for too long
};

/// What one agent sees. Its own pauses are taken out of all seconds.
struct SuccessionView {
  bool connected = true;  ///< the connection to the supervisor stands
  double unheard =
      0.0;  ///< seconds since the last message of the supervisor, or its loss
  LeaseState lease = LeaseState::Held;
  double lease_since = 0.0;   ///< seconds for which the lease has been in this state
  int served = 0;             ///< number of the lease of this agent's supervisor
  int holder = 0;             ///< number of the lease now
  bool holder_here = false;   ///< the holder's process is on this machine, and lives
  int turn = 0;               ///< this agent's place among the successors; -1: none
  bool asked_to_end = false;  ///< by SIGTERM: the agent's step is cancelled
};

enum class SuccessionAct {
  Wait,
  Leave,      ///< nobody needs this agent any more
  Reconnect,  ///< the supervisor lives and has given this agent up
  EndFrozen,  ///< kill the supervisor's process on this machine
  StandIn,    ///< take the lease that has the number `holder`, and supervise
  Requeue,    ///< if the job still runs: no supervisor can be had here
  /// Requeue if Slurm has lost the machine of the batch script, which then ends no job.
  RequeueDeserted,
};

/// Decides what an agent does about a supervisor that the agent does not hear. Has no
/// clock and reads no file.
SuccessionAct decide_succession(const SuccessionRules& rules, const SuccessionView& view);

}  // namespace longhaul::cluster
