"""Whole runs on a device that makes a program's mistakes in its place: each mistake is reported by
name."""

import re

import pytest
from layouts import FP32, LAYOUTS, parallel, train, write_run
from programs import BIN, later, split
from test_device_layouts import waits_of

STEPS = 5
TEMPORARY = 75
DEVICE = ['run.device="plugin"',
          f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"', *FP32, f"run.steps={STEPS}",
          "resilience.checksum_every=0"]  # a check of replicas waits for the device, too
RACE = "softdev: RACE: "
UNORDERED = "and nothing orders the two ("
# For each mistake: the layout, the fault with the chance at which it is made, and words of the
# report.
FAULTS = [
    ("tp2_sequence", "forget_wait:20", [RACE, " reads what ", UNORDERED]),
    ("tp2_sequence", "host_read:500", ["softdev: STRAY: the host touches memory of device 0, byte "]),
    ("zero3", "wrong_stream:20", [RACE + "reduce_scatter number 20", "(operation 1 of stream",
                                  UNORDERED]),
    ("pp2", "early_receive:1", ["softdev: deadlock: ", "'receive from rank 1 number",
                                "is first before 'send to rank 1 number"]),
    ("zero3", "early_reuse:1", [RACE + "a buffer reused too early: ", "what was freed while ",
                                UNORDERED]),
]
MORE = [
    ("pp2_interleaved", "forget_wait:40", [RACE, UNORDERED]),
    ("zero3", "forget_wait:20", [RACE, UNORDERED]),
    ("cp2_ring", "forget_wait:40", [RACE, UNORDERED]),
    ("zero1", "forget_wait:4", [RACE, UNORDERED]),
    ("pp2", "host_read:300", ["softdev: STRAY: "]),
    ("tp2_sequence", "wrong_stream:30", [RACE, UNORDERED]),
    ("zero2", "wrong_stream:20", [RACE, UNORDERED]),
    ("pp2_interleaved", "early_receive:3", ["softdev: deadlock: ", "'receive from rank "]),
    ("zero2", "early_reuse:1", [RACE + "a buffer reused too early: "]),
]


def traced(run, store, path, name, fault="", check=True):
    """The completed run, and what each rank's host has waited for."""
    ranks, keys = LAYOUTS[name]

    def with_fault(*words, env, **options):
        return run(*words, env={**env, "SOFTDEV_FAULT": fault, "SOFTDEV_TRACE": str(path / "trace")},
                   check=check, **options)

    result = train(with_fault, write_run(path, store), *keys, *DEVICE, ranks=ranks)
    return result, list(waits_of(path / "trace"))


@pytest.mark.parametrize("name, fault, said", [*FAULTS, *later(*MORE)])
def test_a_mistake_ends_a_run_and_is_told(run, store, tmp_path, name, fault, said):
    result, _ = traced(run, store, tmp_path, name, fault, check=False)
    assert result.returncode != 0
    for text in said:
        assert text in result.stderr, result.stderr


def test_an_event_that_is_never_waited_for_is_told(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTDEV_FORGET_WAITS", "1")
    result, _ = traced(run, store, tmp_path, "tp2_sequence", check=False)
    assert result.returncode != 0
    assert RACE in result.stderr and UNORDERED in result.stderr


def steps_of(waits):
    """The places of the waits that end the third step and later ones; the certificate comes before
    them."""
    return [i for i, wait in enumerate(waits) if wait["at"] == "event query"][-(STEPS - 2):]


def within_steps(waits):
    """What the host waits for between the ends of two steps."""
    first, *_, last = steps_of(waits)
    return [wait["at"] for wait in waits[first:last] if wait["at"] != "event query"]


@pytest.mark.parametrize("name", ["tp2_sequence", *later("zero3", "cp2_ring")])
def test_a_wait_within_a_step_is_told_by_its_name(run, store, tmp_path, name):
    _, waits = traced(run, store, tmp_path, name)
    assert [within_steps(each) for each in waits] == [[], []]
    before = waits[0][steps_of(waits[0])[-2]]
    kernel = before["launches"] - before["collectives"] + 100
    (tmp_path / "again").mkdir()
    _, waits = traced(run, store, tmp_path / "again", name, f"extra_wait:{kernel}")
    assert [within_steps(each) for each in waits] == [["device"], ["device"]]


def test_a_device_without_what_a_run_can_do_without_trains_and_says_so(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTDEV_LACKS", "name,getMemoryInfo,getStreamFromGlobalPool,elapsedTime,isPinnedPtr,"
                       "getDefaultGenerator,getNewGenerator,getDeviceFromPtr,isBuilt,isAvailable")
    result, _ = traced(run, store, tmp_path, "zero3")
    said = result.stdout + result.stderr
    assert "plugin:0 does not tell how much memory it has (getMemoryInfo)" in said, said


@pytest.mark.parametrize("keys, function", [
    (["memory.recompute=full", "memory.offload_activations=true"], "getStreamFromGlobalPool"),
    (["profile.every=2"], "elapsedTime")])
def test_a_setting_that_needs_more_of_the_device_names_it(run, store, tmp_path, keys, function):
    def bare(*words, env, **options):
        return run(*words, env={**env, "SOFTDEV_LACKS": function}, check=False, **options)

    result = train(bare, write_run(tmp_path, store), *keys, *DEVICE, ranks=1)
    assert result.returncode == 78, result.stderr
    assert f"needs {function} of the guard of the device 'softdev'" in result.stderr, result.stderr


# Rank 1 stands still at one of its operations between ranks: its whole process does ("stop"), or
# its device ("stall"). For each case: the layout, further settings, the fault, and what is said of
# it.
MANY = ["batch.global_size=32", "batch.micro_size=1"]  # more launches than a queue takes
STILL = {
    "forward": (parallel(2, tp=2), MANY, "stop:3",
                "step 1 phase gradients: reduce_scatter number 3 "),
    "backward": (parallel(2, zero=3), MANY, "stall:11",
                 "step 1 phase gradients: reduce_scatter number 11 "),
    "rows": (parallel(2, ep=2), [], "stop:9", "step 1 phase gradients: send_recv number 1 "),
    "replicas": (parallel(2, zero=1), ["resilience.checksum_every=1"], "stall:20",
                 "step 1 phase replicas: all_gather "),
    "save": (parallel(2, zero=0),
             ['optimizer.kind="lamb"', "run.stop_after=2"], "stall:16",
             "step 2 phase checkpoint wait: all_reduce "),
    "peer_memory": (parallel(2, zero=0), ['optimizer.kind="lamb"', "resilience.peer_memory_every=1"],
                    "stall:16", "step 2 phase peer memory: all_reduce "),
}


@pytest.mark.parametrize("place", split(STILL, ["forward"]))
def test_a_rank_that_stands_still_is_named_with_the_collective_by_the_deadline(run, store, tmp_path,
                                                                               place):
    (ranks, keys), settings, fault, said = STILL[place]

    def with_fault(*words, env, **options):
        env = {**env, "SOFTDEV_FAULT": fault, "SOFTDEV_COUNT": str(ranks), "SOFTDEV_QUEUE": "1024",
               "SOFTDEV_LIMIT": "60"}
        return run(*words, env=env, check=False, **options)

    model = {"model_type": "qwen3_moe"} if place == "rows" else {}
    result = train(with_fault, write_run(tmp_path, store, **model), *keys, *DEVICE, *settings,
                   "resilience.comm_timeout_s=4", ranks=ranks)
    assert result.returncode == TEMPORARY, result.stderr
    assert re.search(rf"rank [01] of 2: \[comm\] {said}", result.stderr), result.stderr
    assert "did not end within 4.0 s" in result.stderr, result.stderr
