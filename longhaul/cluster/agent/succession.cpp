#include "longhaul/cluster/agent/succession.h"

#include <algorithm>

namespace longhaul::cluster {
namespace {

bool is_my_turn(const SuccessionRules& rules, const SuccessionView& view) {
  if (view.turn < 0) return false;
  const double before = rules.turn * std::min(view.turn, rules.last_turn);
  return view.lease_since >= before + (view.connected ? rules.frozen : 0.0);
}

}  // namespace

SuccessionAct decide_succession(const SuccessionRules& rules,
                                const SuccessionView& view) {
  if (view.connected && view.unheard < rules.silence) return SuccessionAct::Wait;
  // This agent's step is cancelled while the job goes on. The agent has seconds left, and
  // a supervisor that it started would end with it.
  const bool last_words =
      view.asked_to_end && !view.connected && view.unheard >= rules.script;
  if (view.lease == LeaseState::Released) {
    if (view.asked_to_end && !view.connected) return SuccessionAct::Leave;
    const bool waits = view.connected || view.lease_since < rules.script_end;
    if (waits) return SuccessionAct::Wait;
    // A few agents are enough to ask Slurm.
    const bool asks = view.turn >= 0 && view.turn <= rules.last_turn;
    return asks ? SuccessionAct::RequeueDeserted : SuccessionAct::Leave;
  }
  if (last_words) {
    return view.holder == view.served ? SuccessionAct::Requeue : SuccessionAct::Leave;
  }
  if (view.lease == LeaseState::Unknown) {
    return view.lease_since >= rules.unknown ? SuccessionAct::Requeue
                                             : SuccessionAct::Wait;
  }
  if (view.lease == LeaseState::Held) {
    // A supervisor that has taken over ends this agent's step and starts a new one.
    const bool given_up = !view.connected && view.holder == view.served;
    return given_up ? SuccessionAct::Reconnect : SuccessionAct::Wait;
  }
  if (view.holder_here) return SuccessionAct::EndFrozen;
  return is_my_turn(rules, view) ? SuccessionAct::StandIn : SuccessionAct::Wait;
}

}  // namespace longhaul::cluster
