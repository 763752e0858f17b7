"""longhaul drill on a real cluster: faults into a supervised run, by job steps on its nodes."""

import json
import re

from faults import Supervised, whole_curve


def drill(run, binary, *words, node=None):
    done = run.cluster.call(binary("longhaul"), "drill", run.dir, *words, "--yes", "--json",
                            "--wait", 100, node=node, check=False, seconds=150)
    assert done.returncode == 0, done.stdout + done.stderr + run.tail()
    result = json.loads(done.stdout)
    assert result["came_back"] and result["seconds_to_new_step"] > 0, result
    return result


def test_a_live_run_is_hit_by_rank_and_by_node_and_comes_back(cluster, binary, folder):
    run = Supervised(cluster, binary, folder, steps=100000)
    run.wait_for_step(8)
    workers = run.workers()
    result = drill(run, binary, "--fault", "kill-worker", "--rank", 5)
    print(result)
    assert result["node"] == workers[5][0] and f"rank 5 on {result['node']}" in result["cause"]

    # The fault also kills the agent of that node, but the node itself stays.
    node = run.other_nodes()[0]
    rank = next(rank for rank, place in run.workers().items() if place[0] == node)
    result = drill(run, binary, "--fault", "kill-node", "--rank", rank, node=run.supervisor()[0])
    print(result)
    assert result["node"] == node and f"on {node}" in result["cause"]
    assert f"the agent on {node} ended" in run.log()

    # A spare takes the place of a node that is marked.
    result = drill(run, binary, "--fault", "mark-unhealthy", "--rank", rank)
    print(result)
    assert result["node"] not in {place[0] for place in run.workers().values()}
    [entry] = json.loads((run.dir / "excluded_nodes.json").read_text())
    assert (entry["node"], entry["cause"]) == (result["node"], "marked by longhaul drill")

    (run.dir / "STOP").touch()
    assert run.cluster.wait_for_job(run.job, "FAILED", 60)["ExitCode"] == "79:0"
    whole_curve(run.dir)  # what was done again has the same losses


def test_a_job_drills_small_runs_of_its_own_on_its_nodes(cluster, binary, folder):
    done = cluster.call(
        binary("longhaul"), "submit", "--nodes", 3, "--", "drill", "--dir", "drill", "--nodes", 2,
        "--spares", 1, "-n", 2, "--steps", 30, "--faults", "kill-worker,kill-node,mark-unhealthy",
        cwd=folder)
    job = cluster.note_job(re.match(r"job (\d+): ", done.stdout)[1])
    state = cluster.wait_for_job(job, ["COMPLETED", "FAILED", "CANCELLED"], 150)
    log = (folder / f"drill-{job}.log").read_text()
    print(log)
    assert state["JobState"] == "COMPLETED", log
    table = {line.split()[0]: line.split()[1:] for line in log.splitlines()
             if re.match(r"(kill-worker|kill-node|mark-unhealthy) +(ok|FAILED) ", line)}
    assert {fault: words[0] for fault, words in table.items()} == {
        "kill-worker": "ok", "kill-node": "ok", "mark-unhealthy": "ok"}, log
    nodes = {event["nodes"][0] for event in map(
        json.loads, (folder / "drill/mark-unhealthy/events.jsonl").read_text().splitlines())
        if event["event"] == "restart"}
    [entry] = json.loads((folder / "drill/mark-unhealthy/excluded_nodes.json").read_text())
    assert nodes == {entry["node"]}
