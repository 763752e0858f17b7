#pragma once

namespace longhaul::cluster {

/// Patience of an agent with its supervisor, in seconds.
struct SuccessionRules {
  /// A supervisor says something every second; after that it is taken for frozen.
  double silence = 12.0;
  /// More patience for one whose connection stands: whoever is on its machine can end it,
  /// and its batch script then starts another, which is cheaper than a stand-in.
  double frozen = 10.0;
  /// Between one successor and the next.
  double turn = 5.0;
  /// Successors behind this one share its turn; the lease lets one of them through.
  int last_turn = 7;
  /// Within which a script that lives starts a supervisor that ended.
  double script = 2.0;
  /// A supervisor that ended in order leaves a script that ends the job, or starts
  /// another.
  double script_end = 60.0;
  /// Storage that does not say who has the lease: after that Slurm is asked to decide.
  double unknown = 300.0;
};

enum class LeaseState {
  Unknown,   ///< storage does not say
  Released,  ///< the supervisor ended in order, or there was none
  Held,
  Expired,  ///< its holder is dead, or has not renewed it for too long
};

/// What one agent sees. Its own pauses are taken out of all seconds.
struct SuccessionView {
  bool connected = true;  ///< the connection to the supervisor stands
  double unheard = 0.0;   ///< seconds since the supervisor said something, or was lost
  LeaseState lease = LeaseState::Held;
  double lease_since = 0.0;   ///< seconds for which it has been seen in this state
  int served = 0;             ///< the lease's number that this agent's supervisor has
  int holder = 0;             ///< the lease's number now
  bool holder_here = false;   ///< the holder's process is on this machine, and lives
  int turn = 0;               ///< this agent's place among the successors; -1: not one
  bool asked_to_end = false;  ///< SIGTERM: its step is cancelled
};

enum class SuccessionAct {
  Wait,
  Leave,      ///< nobody needs this agent any more
  Reconnect,  ///< its supervisor lives and has given it up
  EndFrozen,  ///< kill the supervisor's process on this machine
  StandIn,    ///< take the lease that has the number `holder`, and supervise
  Requeue,    ///< if the job still runs: nobody here can go on
  /// Requeue if Slurm has lost the machine of the script: it ends no job any more.
  RequeueDeserted,
};

/// What an agent does about a supervisor that it does not hear. Pure: no clock, no files.
SuccessionAct decide_succession(const SuccessionRules& rules, const SuccessionView& view);

}  // namespace longhaul::cluster
