"""Faults that are put into the cores on purpose, one at a time: each has to be found by the simulations, or by the unit test of sequences. Works on a copy of the sources, and says which faults nobody found.

    tests/long/mutations.py [WORD ...]      only those whose description has one of these words
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults

RUNS = os.environ.get("HP_RUNS", "100")
TESTS = ["unit/coordinator/sequences", "sim/recovery", "sim/failures", "sim/plague", "sim/rebalance", "sim/handoff", "sim/frames", "sim/growth", "sim/resume", "sim/replication", "sim/devices"]

# What it is, file, what stands there, what takes its place (once).
FAULTS = [
    ("stages are not told that a sequence begins anew", "coordinator/sequence_ends.c", "    sequence_order_close(c, d, s->id, 0);\n    s->n_ids = 0;", "    s->n_ids = 0;"),
    ("what a lost agent had open is forgotten at its stages and nowhere else", "coordinator/lifecycle_ends.c", "    sequences_lose_all(c, d, why);\n    neighbours_stop", "    neighbours_stop"),
    ("tokens that were told before are told again", "coordinator/sequence_steps.c", "size_t known = (size_t)(s->n_output - t->first);", "size_t known = 0;"),
    ("a gap in the tokens is not seen", "coordinator/sequence_steps.c", "else if (t->first > s->n_output)\n", "else if (t->first > s->n_output + 1000)\n"),
    ("any agent may say tokens", "coordinator/sequences.c", "mine = mine || d->stages[i].agent == m;", "mine = mine || m;"),
    ("the room of what ends is not given back", "coordinator/sequence.c", "    s->of->n_active--;\n    kv_account_close(&d->kv, &s->holding);", "    s->of->n_active--;"),
    ("a lost agent breaks no deployment", "coordinator/lifecycle_members.c", "else if (d->state == DEPLOYMENT_PREPARING || deployment_serves(d))", "else if (d->state == DEPLOYMENT_PREPARING)"),
    ("an agent that was restarted is believed to hold its stage", "coordinator/stage_reports.c", "ready = ready && stage_is_ready(d, s);", "ready = true;"),
    ("sequences go on over a connection that was lost", "coordinator/stage_reports.c", "        sequences_lose_all(c, d, &e);\n", ""),
    ("the next place has the number of the one before", "coordinator/stages.c", "    d->generation++;\n", ""),
    ("a silent agent is never lost", "coordinator/membership.c", "if (silent >= coord_ms(patience_ms(c, m))) {", "if (silent >= 1000 * coord_ms(patience_ms(c, m))) {"),
    ("who is lost never comes to serve again", "coordinator/lifecycle_ends.c", "    lifecycle_move(c, d, DEPLOYMENT_BROKEN);\n    deployment_retry(c, d);\n}\n\nvoid lifecycle_break", "    lifecycle_move(c, d, DEPLOYMENT_BROKEN);\n}\n\nvoid lifecycle_break"),
    ("the random stream begins anew", "coordinator/sequence_orders.c", "m.u.sequence_open.sampled = last ? s->resumed : 0;", "m.u.sequence_open.sampled = 0;"),
    ("a new coordinator takes over what not all stages have", "coordinator/streams.c", "    if (held == all) {", "    if (held <= all) {"),
    ("the deployment of before serves before its agents have told what they have", "coordinator/lifecycle.c", "(late || streams_all_told(d))", "(late || d)"),
    ("what stages have of a request that is over stays there", "coordinator/streams.c", "    if (!used)\n        held_close(", "    if (used)\n        held_close("),
    ("a taken-over sequence begins with its first token", "coordinator/streams.c", "    s->n_output = s->resumed = n;\n", "    s->resumed = n;\n"),
    ("a new coordinator has the stages connected anew and forget", "coordinator/stages.c", "        m.u.stage_connect.keep = d->keeps;\n", ""),
    ("what runs at an agent that joined once more is closed there", "coordinator/streams.c", "if (placed && row->open", "if (here && row->open"),
    ("room that was ordered of agents that were away is not ordered again", "coordinator/streams.c", "        sequence_order_grow(c, d, s);", "        (void)c;"),
    ("a copy of a sequence stays when that has ended", "coordinator/sequence_ends.c", "    replica_drop(c, s);\n", ""),
    ("a sequence that is copied is taken for one that moves", "coordinator/sequence_steps.c", "if (handoff_copies(s) && s == s->handoff->to)", "if (s == NULL)"),
    ("what is lost does not look for its copy", "coordinator/prefix_peers.c", "s->embeds || s->reads_itself", "s->embeds || s->resumed || s->reads_itself"),
    ("a sequence is tied to its copy for ever", "coordinator/replication.c", "    sequence_untie(s);\n", ""),
    ("who keeps copies stays where a stage needs its room", "coordinator/keeper_plans.c", "return k->n_stages && planner_free_bytes(", "return !k && planner_free_bytes("),
    ("who keeps copies outlives what it keeps them for", "coordinator/lifecycle.c", "d->spec.copy_of[0] && !keeper_plan_wanted(c, d)", "d->spec.copy_of[0] && !d->model"),
    ("a copy of which all has come is not known to be there", "coordinator/handoffs.c", "            return HANDOFF_KEPT;\n", "            return HANDOFF_NOTHING;\n"),
    ("keys of a long sequence are copied as those of a short one", "coordinator/replication.c", "return !from || (s->n_prompt + s->max_tokens > from) == (s->n_ids > from);", "return !from || s;"),
    ("who keeps copies stays beside a stage when another agent comes", "coordinator/keeper_plans.c", "(keeper_rests(c, k, d) && keeper_lies_badly(c, k, d))", "(keeper_rests(c, k, d) && keeper_lies_badly(c, k, d) && !k)"),
    ("copies are put where they have no room, as no stage is there", "coordinator/keeper_plans.c", "    if (!b->agent || roomy != place_is_roomy(b, d))\n        return !b->agent || roomy;\n", "    if (!b->agent)\n        return true;\n    (void)roomy;\n"),
    ("copies go to an agent that comes and goes as to any", "coordinator/keeper_plans.c", "    if (a->held_off != b->held_off)\n        return b->held_off;\n", ""),
    ("a stage that finds no memory gets none of what copies have", "coordinator/lifecycle_ends.c", "keepers_yield(c, d, true)", "!d"),
    ("copies on all agents go for a stage that finds no memory on one", "coordinator/keeper_plans.c", "    for (int i = 0; k->n_stages && i < to->n_stages; i++)\n        if (to->stages[i].agent == k->stages[0].agent)\n            return true;\n    return false;\n", "    return k->n_stages && to->n_stages;\n"),
    ("copies are tried by turns where they cannot be made", "coordinator/keeper_plans.c", "        k->stages[0].agent->copies_failed_ns = coord_now(c);\n", "        (void)c;\n"),
    ("what is left of a place goes on for ever when a drain is taken back", "coordinator/lifecycle_members.c", "d->state == DEPLOYMENT_MOVING && !d->heir &&", "d->state == DEPLOYMENT_MOVING &&"),
    ("an agent that comes and goes is taken each time", "coordinator/lifecycle_members.c", "            flapping_note(c, m);\n", "            (void)m;\n"),
    ("an agent that comes and goes is brought back each time", "coordinator/regrowth.c", " && !flapping_in(c, d->wish)", ""),
    ("what an agent held of a place before is never unloaded", "coordinator/stage_reports.c", "if (!d || old || d->state == DEPLOYMENT_STOPPING)", "if (d && !old && d->state == DEPLOYMENT_STOPPING)"),
    ("a place that has become far worse is not left by itself", "coordinator/rebalance_watch.c", "d->spec.rebalances == REBALANCING_DEGRADED && !s->degraded;", "d->spec.rebalances == REBALANCING_DEGRADED;"),
    ("a place that has become far worse is left at once, by one plan", "coordinator/rebalance_watch.c", "{.dry = !d->watch.confirmed,", "{.dry = false,"),
    ("what was slow for a moment is left all the same", "coordinator/paces.c", "(p->degraded && pace_times(p) >= PACE_GROSS);", "p->degraded;"),
    ("a stage of a place before is prepared", "agent/core_stages.c", "if (p->generation < core_orders_term(c, p->deployment)) {", "if (!p->generation) {"),
    ("orders to the stages of a place before are obeyed", "agent/core_state.c", "bool old = generation < core_orders_term(c, deployment);", "bool old = !generation;"),
    ("an agent forgets with its stages what it was ordered last", "agent/core_stages.c", "    core_orders_term_take(c, p->deployment, p->generation);\n", ""),
    ("the last stage forgets what it said when a sequence ends", "agent/core_sequences.c", "    core_stream_left(c, s, own);\n", ""),
]


def found_by(folder):
    """The first simulation that fails, or None."""
    for t in TESTS:
        try:
            done = subprocess.run([f"build/tests/{t}_test"], cwd=folder, env=dict(os.environ, HP_RUNS=RUNS), capture_output=True, timeout=180)
        except subprocess.TimeoutExpired:
            return t + " (no end)"
        if done.returncode:
            return t
    return None


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [f for f in FAULTS if not words or any(w in f[0] for w in words)]
    sys.exit(faults.run(chosen, "mutations", [f"build/tests/{t}_test" for t in TESTS], found_by, True))
