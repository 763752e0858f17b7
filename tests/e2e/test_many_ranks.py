"""The cost of controlling a run, for each rank, must not grow with the number of ranks. The real
supervisor runs over ranks that only keep records (bench/control.cpp). bench/bench_control.py does
the same with thousands of ranks."""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from bench_control import measure  # noqa: E402


def per_rank(result, ranks):
    """For each rank: bytes on the wire in a second at rest, bytes of status.json, and
    descriptors."""
    return {"rest": statistics.median(r["wire_bytes_per_second"] for r in result["rests"]) / ranks,
            "status": result["status_bytes"] / ranks,
            "descriptors": result["descriptors"] / ranks}


def test_a_rank_that_dies_among_many_is_replaced_and_costs_no_more_than_among_few(binary):
    tool = binary("longhaul_control_tool")
    few = measure(tool, 8, restarts=1, rest=2.0)
    many = measure(tool, 64, restarts=1, rest=2.0)
    assert [len(r["starts"]) for r in (few, many)] == [2, 2]
    assert many["exit"] == 75 and many["notes"] == 0
    of_few, of_many = per_rank(few, 64), per_rank(many, 512)
    for key, cost in of_many.items():
        assert cost < 1.1 * of_few[key], (key, of_few, of_many)
    # A restart may take its time, and what ranks send at rest goes on, so that is left out.
    for restart in many["starts"][1:]:
        own = restart["wire_bytes"] / 512 - restart["seconds"] * of_many["rest"]
        assert own < 800, (restart, of_many)
    # A rank sends two rows of about 280 bytes a second. With the names of all fields they would
    # have 1,400 bytes.
    assert of_many["rest"] < 800, of_many
    assert of_many["status"] < 400, of_many


def test_the_supervisors_work_for_a_rank_does_not_grow_with_their_number(binary):
    tool = binary("longhaul_control_tool")
    ranks = {nodes: 8 * nodes for nodes in (16, 512)}
    cpu = {nodes: measure(tool, nodes, restarts=0, rest=4.0, played=True)["rests"][0]["cpu"]
           for nodes in ranks}
    # If the work for a rank grew with the number of ranks, it would be 32 times as much here. A
    # rank costs about 60 us; a part of that is waiting for memory, which depends on the machine.
    assert cpu[512] / ranks[512] < 2 * cpu[16] / ranks[16], cpu
