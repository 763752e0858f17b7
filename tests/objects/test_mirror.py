"""Checkpoints that are copied to a store: a run whose directory is lost goes on from them bitwise,
in any layout, and neither a slow store nor a broken one holds training up."""

import json
import pathlib
import random
import shutil
import time

import pytest
from fault_proxy import FaultProxy, Rule, make_authority
from mirrored_run import differing, sets, wait_for
from processes import kill_all
from programs import later
from runs import PACE, curve, steps_of
from servers import free_port

WRONG, TEMPORARY = 78, 75
SENT = ("PUT", "POST")
# Of the saves that come while another is copied, only the newest is mirrored. Steps are so slow
# here that no save comes while another is copied.
SLOWLY = 'debug.delays=[{phase = "update", seconds = 0.25}]'


# --- a machine that is lost

@pytest.mark.parametrize("server", ["rclone", *later("moto")])
def test_a_run_whose_directory_is_lost_goes_on_bitwise(servers, whole, mirrored, server):
    mine = mirrored(server=servers(server))
    first = mine.train("run.stop_after=4")
    assert "checkpoint step 4 mirrored" in first.stdout, first.stdout
    assert mine.mirrored()[-1] == 4  # one that a newer save has overtaken may be left out
    assert {"step_00000004/a1_rank_00000.safetensors", "step_00000004/manifest.a1.json"} <= set(
        mine.keys())
    mine.lose()
    again = mine.train()
    assert mine.resumed_at(again) == 4
    mine.ends_as(whole(), 4)
    assert steps_of(mine.dir)[5]["attempt"] > 1  # never the number of an attempt that mirrored
    mine.run("longhaul", "verify", mine.dir)
    # The checkpoint that came from the mirror is the one that the run had saved.
    assert mine.mirrored()[-1] == 8
    # The run's metrics and events are mirrored, too, and come back.
    assert curve(mine.dir) == curve(whole())
    assert [event["attempt"] for event in mine.events("start")] == [1, 2]
    assert (mine.dir / "log.txt").read_text().count(" attempt ") == 2
    for name in ("events.jsonl", "metrics.jsonl"):
        assert mine.store.get(f"{mine.name}/run/{name}") == (mine.dir / name).read_bytes()


def test_a_supervised_run_has_its_history_back(mirrored, whole):
    """A supervisor writes into the new directory before any rank does."""
    mine = mirrored()
    for more in (["run.stop_after=4"], []):
        mine.run("longhaul", "launch", "-n", "1", mine.config, *sets(*mine.sets, *more),
                 env=mine.env)
        if more:
            mine.lose()
    assert curve(mine.dir) == curve(whole())
    assert [event["attempt"] for event in mine.events("start")] == [1, 2]
    assert len(mine.events("supervisor_start")) == 2, mine.events("start")
    assert (mine.dir / "log.txt").read_text().count(" attempt ") == 2


def test_the_mirror_has_the_bytes_that_were_saved(mirrored):
    mine = mirrored()
    mine.train()
    for path in filter(pathlib.Path.is_file, mine.last().rglob("*")):
        name = path.relative_to(mine.last()).as_posix().replace("manifest.json",
                                                                "manifest.a1.json")
        assert mine.store.get(f"{mine.name}/step_00000008/{name}") == path.read_bytes(), name


def test_exports_and_reports_go_along(mirrored):
    mine = mirrored()
    mine.train("run.stop_after=2")
    mine.run("longhaul", "export", mine.dir, "--out", mine.dir / "exports/two")
    mine.run("longhaul", "report", mine.dir, "--out", mine.dir / "report.html")
    mine.train("run.stop_after=4")
    files = [p for p in (mine.dir / "exports/two").rglob("*") if p.is_file()]
    assert files
    for path in (*files, mine.dir / "report.html"):
        name = f"{mine.name}/run/{path.relative_to(mine.dir).as_posix()}"
        assert mine.store.get(name) == path.read_bytes(), name


@pytest.mark.soak
@pytest.mark.parametrize("first, then", [
    ((2, []), (1, [])), *later(((1, []), (2, ["parallel.zero=3"])),
                               ((2, ["parallel.tp=2"]), (2, [])),
                               ((4, []), (2, ["parallel.pp=2"])))])
def test_another_layout_goes_on_from_the_mirror_as_from_the_disk(mirrored, first, then):
    runs = [mirrored(folder=name) for name in ("disk", "mirror")]
    for mine in runs:
        mine.store.remove_all(f"{mine.name}/")
        mine.train("run.stop_after=4", *first[1], ranks=first[0])
        assert mine.mirrored()[-1] == 4
        if mine is runs[1]:
            mine.lose()
        assert mine.resumed_at(mine.train(*then[1], ranks=then[0])) == 4
    assert curve(runs[0].dir) == curve(runs[1].dir)
    assert differing(runs[0].last(), runs[1].last()) == []


@pytest.mark.soak
def test_ranks_of_two_machines(mirrored, whole):
    """Two ranks that pretend to be on two machines."""
    mine = mirrored()
    mine.train("run.stop_after=4", ranks=2, nodes=2)
    mine.lose()
    mine.train(ranks=2, nodes=2)
    mine.ends_as(whole(ranks=2), 4)


@pytest.mark.soak
def test_a_start_that_ended_while_it_fetched_is_no_lost_mount(mirrored, whole):
    """On all ranks the run's marker is there then, but no checkpoint."""
    mine = mirrored()
    mine.train("run.stop_after=4", ranks=2)
    for path in (mine.dir / "checkpoints").glob("step_*"):
        shutil.rmtree(path)
    assert mine.resumed_at(mine.train(ranks=2)) == 4
    assert curve(mine.dir) == curve(whole(ranks=2))


@pytest.mark.soak
def test_of_several_attempts_the_newest_counts(mirrored):
    mine = mirrored()
    mine.train("run.stop_after=4")
    # The run goes back to step 2 and on with another rate, so step 4 is saved twice.
    mine.train("checkpoint.resume=2", "optimizer.lr=1e-3", "run.stop_after=4")
    assert steps_of(mine.dir)[4]["attempt"] == 2
    mine.dir.rename(mine.folder / "lost")
    mine.train("run.stop_after=4", "optimizer.lr=1e-3")
    assert differing(mine.last(4), mine.folder / "lost/checkpoints/step_00000004") == []


def test_a_step_that_only_the_mirror_has(mirrored, whole):
    mine = mirrored()
    # A call ends only when the mirror has all of its checkpoints.
    mine.train("checkpoint.mirror_keep=0", "run.stop_after=4")
    mine.train("checkpoint.mirror_keep=0")
    # The run removes a checkpoint by checkpoint.keep, but only when the mirror has copied it.
    shutil.rmtree(mine.last(4))
    assert mine.last(8).exists()
    result = mine.train("checkpoint.resume=4", "checkpoint.mirror_keep=0")
    assert "step 4 restored from s3://" in result.stdout, result.stdout
    assert mine.resumed_at(result) == 4
    mine.ends_as(whole(), 0)
    result = mine.train("checkpoint.resume=5", check=False)
    assert result.returncode == WRONG, result.stderr
    assert f"neither {mine.dir / 'checkpoints'} nor s3://corpus/{mine.name}" in result.stderr
    # The result is the same when the run's directory is lost.
    mine.lose()
    assert mine.resumed_at(mine.train("checkpoint.resume=4")) == 4


def test_what_a_start_gives_up_stays_given_up_when_it_is_killed_before_its_first_save(mirrored):
    mine = mirrored()
    mine.train("run.stop_after=4")
    before = json.loads((mine.dir / "run.json").read_text())["run"]
    process = mine.start('checkpoint.resume="never"',
                         'debug.delays=[{phase = "update", seconds = 90}]')
    wait_for(lambda: json.loads((mine.dir / "run.json").read_text())["run"] != before, process)
    process.kill()
    process.wait()
    result = mine.train("run.stop_after=2")
    assert mine.resumed_at(result) == 0
    assert "MIRROR FAILED" not in result.stdout, result.stdout
    assert mine.mirrored() == [2]


def test_a_killed_run_is_lost_with_its_machine(mirrored, whole):
    mine = mirrored()
    longer = "run.steps=40"
    # Copies are made at low priority: on a busy machine they need the time of many steps.
    process = mine.start('debug.delays=[{phase = "update", seconds = 1}]', longer)
    wait_for(lambda: len(mine.mirrored()) >= 3, process)
    process.kill()
    process.wait()
    reached = mine.mirrored()[-1]
    mine.lose()
    result = mine.train(longer)
    assert mine.resumed_at(result) >= reached
    mine.ends_as(whole(longer), mine.resumed_at(result))


# --- what is in the mirror and is no checkpoint

def cut(mine, key):
    sound = mine.store.get(f"{mine.name}/{key}")
    mine.store.put(f"{mine.name}/{key}", sound[:-1])


def flip(mine, key):
    content = bytearray(mine.store.get(f"{mine.name}/{key}"))
    content[len(content) // 2] ^= 4
    mine.store.put(f"{mine.name}/{key}", bytes(content))


def remove(mine, key):
    mine.store.remove(f"{mine.name}/{key}")


@pytest.mark.parametrize("harm, file", [
    (flip, "a2_rank_00000.safetensors"), *later(
        (remove, "manifest.a2.json"), (cut, "a2_rank_00000.safetensors"),
        (remove, "a2_rank_00000.safetensors"), (remove, "a2_state.json"),
        (flip, "manifest.a2.json"), (cut, "manifest.a2.json"), (flip, "a2_state.json"))])
def test_a_copy_that_is_not_whole_is_passed_over(mirrored, whole, harm, file):
    mine = mirrored()
    for last in (4, 6):  # the end of a call waits for the mirror
        mine.train(f"run.stop_after={last}")
    harm(mine, f"step_00000006/{file}")
    mine.lose()
    result = mine.train()
    assert mine.resumed_at(result) == 4, result.stdout
    mine.ends_as(whole(), 4)
    # The resumed run has mirrored the step again, as a whole.
    mine.lose()
    assert mine.resumed_at(mine.train(check=False)) == 8


def test_a_run_killed_while_it_copies_leaves_no_copy_that_is_taken(store, mirrored, whole):
    with FaultProxy(store.endpoint) as proxy:
        mine = mirrored(endpoint=proxy.endpoint)
        mine.train("run.stop_after=2")
        proxy.rules = [Rule("slow", methods=SENT, keys="step_0000000[468]/a2_rank_00000.safe",
                            seconds=600)]
        process = mine.start(PACE)
        wait_for(lambda: proxy.faults(), process)
        process.kill()
        process.wait()
        proxy.rules = []
        assert mine.mirrored() == [2]
        mine.lose()
        assert mine.resumed_at(mine.train()) == 2
    mine.ends_as(whole(), 2)


@pytest.mark.soak
@pytest.mark.parametrize("server", ["moto", *later("rclone")])
def test_a_mirror_full_of_half_uploads_is_a_mirror(servers, mirrored, whole, server):
    mine = mirrored(server=servers(server))
    mine.train("run.stop_after=4")
    for step in (4, 6, 9):
        for file in ("a1_rank_00000.safetensors", "manifest.a1.json", "a2_rank_00000.safetensors"):
            mine.store.begin_upload(f"{mine.name}/step_{step:08}/{file}", b"half" * 1000)
    mine.lose()
    assert mine.resumed_at(mine.train()) == 4
    mine.ends_as(whole(), 4)


def test_another_run_does_not_take_the_place_of_a_mirror(mirrored):
    mine, other = mirrored(), mirrored(folder="other")
    mine.train("run.stop_after=2")
    before = mine.keys()
    other.run("longhaul", "train", other.config, *sets("run.stop_after=2", "checkpoint.every=2"))
    result = other.train(check=False)
    assert mine.keys() == before or result.returncode == 0
    said = result.stdout + result.stderr
    assert f"s3://corpus/{mine.name}" in said
    assert mine.mirrored() == [2], said


@pytest.mark.parametrize("server", ["rclone", *later("moto")])
def test_old_copies_go_by_the_rule_of_the_mirror(servers, mirrored, server):
    """Old copies are removed at once and completely. A marker of a directory counts as an object,
    too."""
    mine, begin = mirrored(server=servers(server)), time.monotonic()
    mine.train("checkpoint.keep=2", "checkpoint.mirror_keep=3", SLOWLY)
    assert time.monotonic() - begin < 110  # a removal that is tried for long takes 120
    steps = mine.mirrored()  # one that a newer save has overtaken may be left out
    assert steps[-1] == 8 and len(steps) <= 3
    # rclone's server lists a directory that has become empty as an object of no bytes.
    left = [key for key, size in mine.store.sizes(f"{mine.name}/step_").items()
            if size > 0 and int(key.split("step_")[1][:8]) not in steps]
    assert left == []
    here = sorted(p.name for p in (mine.dir / "checkpoints").glob("step_*"))
    # While the mirror is busy, two checkpoints more than checkpoint.keep may be on the disk.
    assert here[-2:] == ["step_00000006", "step_00000008"] and len(here) <= 4, here


# --- a store that is slow, broken or away

def test_a_mirror_that_is_away_holds_nothing_up(store, mirrored, whole):
    with FaultProxy(store.endpoint) as proxy:
        mine = mirrored(endpoint=proxy.endpoint, patience=2)
        mine.train("run.stop_after=2")
        proxy.rules = [Rule("SlowDown", methods=("GET", "HEAD", *SENT))]
        begin = time.monotonic()
        result = mine.train()
        assert time.monotonic() - begin < 100
        said = result.stdout + result.stderr
        assert "MIRROR" in said and f"s3://corpus/{mine.name}" in said
        assert curve(mine.dir) == curve(whole())
        assert mine.events("mirror_failed"), said
        assert mine.mirrored() == [2]
        # The next start copies what the mirror lacks.
        proxy.rules = []
        mine.train()
        assert mine.mirrored()[-1] == 8


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["ExpiredToken", *later("AccessDenied", "NoSuchBucket")])
def test_a_mirror_that_refuses_is_told_and_training_goes_on(store, mirrored, whole, fault):
    with FaultProxy(store.endpoint) as proxy:
        mine = mirrored(endpoint=proxy.endpoint, patience=2)
        proxy.rules = [Rule(fault, methods=SENT, keys="step_00000004", first=2)]
        result = mine.train(SLOWLY)
        assert "MIRROR FAILED" in result.stdout + result.stderr
    assert curve(mine.dir) == curve(whole())
    assert 2 in mine.mirrored() and 4 not in mine.mirrored()
    assert mine.events("mirror_failed")[0]["step"] == 4


@pytest.mark.soak
def test_a_slow_mirror_falls_behind_and_says_so(store, mirrored, whole):
    slow = Rule("slow", methods=SENT, keys="step_", seconds=0.3)
    with FaultProxy(store.endpoint, [slow]) as proxy:
        mine = mirrored(endpoint=proxy.endpoint)
        result = mine.train("checkpoint.every=1")
    assert "THE MIRROR FALLS BEHIND" in result.stdout + result.stderr
    assert mine.events("mirror_behind")
    assert mine.mirrored()[-1] == 8 and len(mine.mirrored()) < 8
    assert curve(mine.dir) == curve(whole())
    # No step waited for the store: all steps were done before the first copies were.
    assert sum(r["step_time_s"] for r in steps_of(mine.dir).values()) < 2


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["SlowDown", *later("reset", "InternalError", "cut_upload")])
def test_a_fault_that_passes_costs_nothing_but_a_retry(store, mirrored, whole, fault):
    with FaultProxy(store.endpoint, [Rule(fault, methods=SENT, keys="step_", times=4)]) as proxy:
        mine = mirrored(endpoint=proxy.endpoint)
        mine.train("run.stop_after=4")
        assert proxy.faults() == {fault: 4}
        assert sum(event["retries"] for event in mine.events("mirrored")) >= 1
        mine.lose()
        proxy.rules = [Rule(name, keys="step_", times=2, bytes=100)
                       for name in ("truncated", "shorter", "reset_in_body", "flip")]
        assert mine.resumed_at(mine.train()) == 4
    mine.ends_as(whole(), 4)


def test_a_start_with_a_checkpoint_on_its_disk_fetches_nothing(store, mirrored, whole):
    with FaultProxy(store.endpoint) as proxy:
        mine = mirrored(endpoint=proxy.endpoint)
        mine.train("run.stop_after=4")
        proxy.requests.clear()
        mine.train()
        # The mirror may read back what it has sent, but not what was there before.
        assert proxy.count("GET", keys=r"step_0000000[24]/.*safetensors") == 0
    assert curve(mine.dir) == curve(whole())


@pytest.mark.parametrize("lost", [True, *later(False)])
def test_nobody_at_the_mirror(mirrored, whole, lost):
    """When nothing answers at the mirror, a run without a checkpoint on the disk does not begin
    anew, and a run with one does not need the mirror."""
    mine = mirrored()
    mine.train("run.stop_after=4")
    mine.env.update(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{free_port()}",
                    LONGHAUL_OBJECTS_PATIENCE="2")
    if lost:
        mine.lose()
    begin = time.monotonic()
    result = mine.train(check=not lost)
    assert time.monotonic() - begin < 100
    if lost:
        assert result.returncode == TEMPORARY, result.stderr
        assert f"s3://corpus/{mine.name}" in result.stderr
        assert not (mine.dir / "metrics.jsonl").exists() or not steps_of(mine.dir)
    else:
        assert curve(mine.dir) == curve(whole())


def test_a_bucket_that_is_gone_is_no_empty_mirror(mirrored):
    mine = mirrored()
    mine.sets[-1] = 'checkpoint.mirror="s3://no-such-bucket/run"'
    result = mine.train(check=False)
    assert result.returncode == WRONG, (result.returncode, result.stderr)
    assert "no-such-bucket" in result.stderr


@pytest.mark.soak
def test_over_https(store, mirrored, whole, tmp_path):
    authority, context = make_authority(tmp_path / "tls")
    with FaultProxy(store.endpoint, tls=context) as proxy:
        mine = mirrored(endpoint=proxy.endpoint, server_env={"AWS_CA_BUNDLE": str(authority)})
        mine.train("run.stop_after=4")
        mine.lose()
        assert mine.resumed_at(mine.train()) == 4
    mine.ends_as(whole(), 4)


def test_verbs_read_the_mirror(mirrored):
    mine = mirrored()
    mine.train()
    place = f"s3://corpus/{mine.name}"
    mine.run("longhaul", "verify", f"{place}/step_00000008", env=mine.env)
    for source, out in ((f"{place}/step_00000008", "there"), (mine.last(), "here")):
        mine.run("longhaul", "export", source, "--out", mine.folder / out, env=mine.env)
    here, there = ({p.name: p.read_bytes() for p in (mine.folder / name).rglob("*") if p.is_file()}
                   for name in ("here", "there"))
    assert here == there


# --- at random

@pytest.mark.parametrize("seed", later(*range(12)))
def test_machines_lost_at_random_from_behind_a_bad_network(store, mirrored, whole, seed):
    chance = random.Random(seed)
    longer, ranks = "run.steps=60", chance.choice([1, 2])
    faults = [Rule(name, methods=("GET", "HEAD", *SENT), share=0.05, seconds=0.5, bytes=100)
              for name in ("SlowDown", "InternalError", "reset", "reset_in_body", "truncated",
                           "shorter", "longer", "slow")]
    faults.append(Rule("cut_upload", methods=("PUT",), share=0.05))
    with FaultProxy(store.endpoint, faults, seed) as proxy:
        mine = mirrored(endpoint=proxy.endpoint)
        for _ in range(5):
            before = mine.mirrored()[-1:] or [0]
            process = mine.start(PACE, longer, ranks=ranks)
            goal = before[0] + chance.choice([2, 4, 8])
            wait_for(lambda: process.poll() is not None
                     or (mine.mirrored()[-1:] or [0])[0] >= min(goal, 60), seconds=120)
            time.sleep(chance.random() * 0.3)
            kill_all(process)
            if chance.random() < 0.7:
                shutil.rmtree(mine.dir, ignore_errors=True)
        reached = (mine.mirrored()[-1:] or [0])[0]
        shutil.rmtree(mine.dir, ignore_errors=True)
        result = mine.train(longer, ranks=ranks)
        assert mine.resumed_at(result) >= reached
    assert differing(mine.last(60),
                     whole(longer, ranks=ranks) / "checkpoints/step_00000060") == []

