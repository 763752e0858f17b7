"""Training on a device: in host memory here, behind a plug-in that behaves as a GPU does."""

import functools
import itertools
import json

import pytest
from layouts import (BF16_MODEL, FEW, FP32, IN_BF16, IN_FP32, LAYOUTS, STEPS, Tolerance, curve, parallel,
                     step_dir, tensors, train, violations, write_run)
from programs import BIN, later, split

DEVICE = ['run.device="plugin"',
          f'run.device_plugin="{BIN / "liblonghaul_software_accelerator.so"}"']
PLAIN = ["run.fused=false"]
LAMB = ['optimizer.kind="lamb"']
ONE = (1, [])
SAME = Tolerance(1e-6, 1e-6, 1e-6)
SHORT = f"run.steps={FEW}"
UNCHECKED = "resilience.checksum_every=0"  # a check of replicas waits for the device, too
NOW = ["pp2_interleaved"]  # zero3 has a padding row below


@pytest.fixture
def judged(judged):
    """Trains without a padding row, which makes the steps less well conditioned, and for a few steps
    only, since the software accelerator is slow."""
    return functools.partial(judged, pad_token_id=None, steps=FEW)


@pytest.mark.parametrize("name", split(LAYOUTS, ["zero3"]))
def test_a_padding_row_on_a_device_is_that_of_a_cpu(judged, name):
    ours, cpu = (judged(LAYOUTS[name], *FP32, *keys, pad_token_id=1) for keys in (DEVICE, PLAIN))
    assert not violations(ours, cpu, IN_FP32)
    assert abs(ours.first_gradients["model.embed_tokens.weight"][1]).max() == 0


@pytest.mark.parametrize("name", split(LAYOUTS, NOW))
def test_a_layout_on_a_device_is_that_of_a_cpu(judged, name):
    """A layout on the device has the numbers of a CPU. A race, a stray access of the host, or ranks
    that wait for each other would end the run."""
    ours = judged(LAYOUTS[name], *FP32, *DEVICE)
    assert not violations(ours, judged(LAYOUTS[name], *FP32, *PLAIN), IN_FP32)


@pytest.mark.parametrize("name", later(*LAYOUTS))
def test_the_plain_form_of_a_layout_on_a_device_is_that_of_a_cpu(judged, name):
    ours = judged(LAYOUTS[name], *FP32, *DEVICE, *PLAIN)
    assert not violations(ours, judged(LAYOUTS[name], *FP32, *PLAIN), SAME)


@pytest.mark.parametrize("name", split(LAYOUTS, ["cp2_ring"]))
def test_a_layout_with_a_devices_attention_is_that_of_a_cpu(judged, name, tmp_path, monkeypatch):
    """The device's attention is for bf16. It is compared with whole keys and with keys in parts."""
    monkeypatch.setenv("SOFTDEV_REPORT", str(tmp_path / "counters"))
    ours = judged(LAYOUTS[name], *DEVICE, **BF16_MODEL)
    assert not violations(ours, judged(LAYOUTS[name], **BF16_MODEL), IN_BF16)
    for line in (tmp_path / "counters").open():
        launches, _ = json.loads(line)["operations"]["aten::_flash_attention_backward"]
        assert launches >= FEW


@pytest.mark.parametrize("settings", [
    pytest.param([], marks=pytest.mark.soak, id="kept"),
    pytest.param(['memory.recompute="selective"'], id="recomputed")])
@pytest.mark.parametrize("family", ["gpt2", pytest.param("gpt_neox", marks=pytest.mark.soak)])
def test_gelu_of_a_device_is_that_of_a_cpu(judged, tmp_path, monkeypatch, family, settings):
    """Each family has one of the two forms of GELU. It is compared for as many steps as the
    family's layouts agree."""
    monkeypatch.setenv("SOFTDEV_REPORT", str(tmp_path / "counters"))
    model = {"model_type": family, "steps": FEW}
    ours = judged(LAYOUTS["tp2_sequence"], *FP32, *DEVICE, *settings, **model)
    assert not violations(ours, judged(LAYOUTS["tp2_sequence"], *FP32, *PLAIN, **model), IN_FP32)
    for line in (tmp_path / "counters").open():
        operations = json.loads(line)["operations"]
        assert operations["longhaul::gelu_backward"][0] >= FEW
        assert "aten::gelu" not in operations


def test_a_device_without_kernels_of_the_fused_forms_runs_the_others(judged, monkeypatch):
    plain = judged(ONE, *FP32, *DEVICE, *PLAIN)
    monkeypatch.setenv("SOFTDEV_COMPOSITE", "1")
    # The bits differ, since only the plain run multiplies q, k and v one by one.
    assert not violations(judged(ONE, *FP32, *DEVICE), plain, IN_FP32)


@pytest.mark.parametrize("name", later(*LAYOUTS))
def test_norms_of_heads_on_a_device_are_those_of_a_cpu_with_as_many_products(judged, name, tmp_path,
                                                                          monkeypatch):
    """With norms, too, q, k and v are one product."""
    counters = tmp_path / "counters"
    monkeypatch.setenv("SOFTDEV_REPORT", str(counters))
    heads = dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3")
    ours = judged(LAYOUTS[name], *FP32, *DEVICE, **heads)
    assert not violations(ours, judged(LAYOUTS[name], *FP32, *PLAIN, **heads), IN_FP32)
    judged(LAYOUTS[name], *FP32, *DEVICE)
    # These are the products of the weights' gradients, which the measurement of a rate has none of.
    products = [json.loads(line)["operations"]["aten::addmm"] for line in counters.open()]
    ranks = LAYOUTS[name][0]
    assert len(products) == 2 * ranks
    assert sorted(products[:ranks]) == sorted(products[ranks:])


@pytest.mark.soak
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_second_run_on_a_device_has_the_same_bits(trained, name):
    first, second = (trained(LAYOUTS[name], *FP32, *DEVICE, copy=n) for n in range(2))
    assert curve(first) == curve(second)
    assert tensors(step_dir(first, STEPS)) == tensors(step_dir(second, STEPS))


@pytest.mark.parametrize("name", ["tp2_sequence", *later("dp2", "cp2_ring", "zero3", *NOW)])
def test_a_device_without_collectives_has_the_same_bits_through_the_host(trained, name, tmp_path,
                                                                        monkeypatch):
    own = trained(LAYOUTS[name], *FP32, *DEVICE, SHORT)
    monkeypatch.setenv("SOFTDEV_NO_COLLECTIVES", "1")
    monkeypatch.setenv("SOFTDEV_REPORT", str(tmp_path / "counters"))
    staged = trained(LAYOUTS[name], *FP32, *DEVICE, SHORT)
    counters = [json.loads(line) for line in (tmp_path / "counters").open()]
    assert [c["collectives"] for c in counters] == [0, 0]
    assert curve(staged) == curve(own)
    assert tensors(step_dir(staged, FEW)) == tensors(step_dir(own, FEW))


def test_memory_by_phase_is_what_tensors_have_on_the_device(trained):
    run = trained(LAYOUTS["tp2_sequence"], *FP32, *DEVICE, SHORT)
    first = json.loads((run / "metrics.jsonl").open().readline())
    used = first["phase_memory_bytes"]
    # Inputs are kept between forward and backward, and nothing of a pass after it.
    assert 0 < used["weights"] < used["forward"] <= first["memory_peak_bytes"]
    assert used["backward"] == pytest.approx(used["weights"], rel=0.1)
    assert used["update"] == pytest.approx(used["weights"], rel=0.1)


@pytest.mark.soak
def test_ranks_of_two_machines_have_the_devices_of_their_places(run, store, tmp_path, monkeypatch):
    """Four ranks of one machine have the devices 0 to 3. With two ranks on each of two machines,
    the devices are 0 and 1 on both."""
    curves = []
    for nodes, devices in [(1, 4), (2, 2)]:
        monkeypatch.setenv("SOFTDEV_COUNT", str(devices))
        path = tmp_path / str(nodes)
        path.mkdir()
        train(run, write_run(path, store), "parallel.tp=2", "parallel.sequence=true",
              "parallel.zero=1", "batch.micro_size=1", *FP32, *DEVICE, ranks=4, nodes=nodes)
        curves.append(curve(path / "run"))
    assert curves[0] == curves[1]


def test_a_machine_with_fewer_devices_than_ranks_is_refused(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTDEV_COUNT", "2")
    refused = train(run, write_run(tmp_path, store), "batch.global_size=6", "batch.micro_size=1",
                    *FP32, *DEVICE, ranks=6, nodes=2, check=False)
    assert refused.returncode == 78
    assert "3 ranks on this machine, and each rank sees 2 devices" in refused.stderr


@pytest.mark.parametrize("name", split(LAYOUTS, ["tp2_sequence"]))
def test_a_profile_has_the_devices_time_of_operations(run, store, tmp_path, name):
    ranks, keys = LAYOUTS[name]
    train(run, write_run(tmp_path, store), *keys, *DEVICE, "profile.steps=[2]", "run.steps=3",
          ranks=ranks)
    (event,) = (r for r in map(json.loads, (tmp_path / "run/events.jsonl").open())
                if r.get("event") == "profile")
    assert event["clock"] == "softdev:0"
    rows = {row["name"]: row for row in event["operations"]}
    assert rows["aten::mm"]["calls"] > 0
    assert "aten::resolve_conj" not in rows  # of the CPU's kernels, which stand in
    assert 0 < sum(row["seconds"] for row in rows.values()) <= event["seconds"]


def waits_of(path):
    """The waits of each rank's host, in order. Left out are waits of the measurements of the
    device's rate between steps, since a slow machine has more of these: they read nothing."""
    by_rank, copies = {}, {}
    for line in path.open():
        wait = json.loads(line)
        copied = wait["operations"].get("copy to the host")
        reads = copied != copies.get(wait["pid"])
        copies[wait["pid"]] = copied
        if wait["at"] != "event" and (reads or wait["at"] != "event query"):
            by_rank.setdefault(wait["pid"], []).append(wait)
    return by_rank.values()


@pytest.mark.parametrize("name", later(*LAYOUTS))
def test_lamb_on_a_device_is_that_of_a_cpu(judged, name):
    ours = judged(LAYOUTS[name], *FP32, *LAMB, *DEVICE, *PLAIN)
    assert not violations(ours, judged(LAYOUTS[name], *FP32, *LAMB, *PLAIN), SAME)


@pytest.mark.parametrize("name,optimizer", split(
    itertools.product(LAYOUTS, ([], LAMB)), [("pp2_interleaved", LAMB)]))
def test_a_step_waits_for_its_device_once_and_allocates_nothing(run, store, tmp_path, monkeypatch, name,
                                                                optimizer):
    ranks, keys = LAYOUTS[name]
    path = tmp_path / "waits.jsonl"
    monkeypatch.setenv("SOFTDEV_TRACE", str(path))
    train(run, write_run(tmp_path, store), *keys, *FP32, *DEVICE, *optimizer, SHORT, UNCHECKED,
          ranks=ranks)
    for waits in waits_of(path):
        # The waits of the certificate come before the steps, and those of the last save come after
        # them.
        places = [i for i, w in enumerate(waits) if w["at"] == "event query"][-(FEW - 2):]
        assert places == list(range(places[0], places[0] + FEW - 2))
        steps = [waits[i] for i in places]
        assert len({w["device_allocations"] for w in steps}) == 1
        assert len({w["used_bytes"] for w in steps}) == 1


def test_a_save_is_copied_beside_the_steps_once_for_all_who_want_it(run, store, tmp_path,
                                                                    monkeypatch):
    """The state is copied on a stream of its own, once a step for a save and for peer memory, and
    the update that follows waits for it."""
    path = tmp_path / "timeline"
    monkeypatch.setenv("SOFTDEV_TIMELINE", str(path))
    monkeypatch.setenv("LONGHAUL_MEMORY_DIR", str(tmp_path / "memory"))
    (tmp_path / "memory").mkdir()
    train(run, write_run(tmp_path, store), *FP32, *DEVICE, "run.steps=4", "checkpoint.every=1",
          "resilience.peer_memory_every=1")
    lines = [line.rstrip("\n").split("\t")[1:] for line in path.open()]
    current = "stream 0 of device 0"
    copied = [i for i, (stream, what) in enumerate(lines)
              if what == "copy to the host" and stream != current]
    (beside,) = {lines[i][0] for i in copied}
    updates = [i for i, (_, what) in enumerate(lines) if what.startswith("longhaul::adamw")]
    steps = [i for n, i in enumerate(updates) if any(updates[n - 1] < c < i for c in copied)]
    assert len(steps) == 3
    for update in steps:
        last = max(c for c in copied if c < update)
        assert [current, f"waits for {beside}"] in lines[last:update]
    counts = [sum(a < c < b for c in copied) for a, b in itertools.pairwise(steps)]
    assert len(set(counts)) == 1
    # Masters and two moments of each bucket, once.
    assert counts[0] == sum(c < updates[0] for c in copied) > 3


EXPERTS = {"one": ONE, "ep2": parallel(2, ep=2), "dp4_ep2_zero3": parallel(4, 1, zero=3, ep=2),
           "ep2_tp2_dp2": parallel(4, tp=2, ep=2), "ep2_pp2": parallel(4, pp=2, ep=2),
           "ep2_cp2": parallel(2, 4, cp=2, ep=2)}


@pytest.mark.parametrize("name", split(EXPERTS, ["ep2"]))
def test_experts_on_a_device_are_those_of_a_cpu(judged, name):
    ours, cpu = (judged(EXPERTS[name], *FP32, *keys, model_type="qwen3_moe")
                 for keys in (DEVICE, PLAIN))
    assert not violations(ours, cpu, IN_FP32)


# What several GPUs do that this device usually does not: a call of the library is in progress for a
# while; a host waits where a stream's queue is full; streams share a queue of the hardware.
MODES = {"in_progress": {"SOFTDEV_IN_PROGRESS": "30", "SOFTDEV_QUEUE": "1024"},
         "short_queue": {"SOFTDEV_QUEUE": "8"}, "one_queue": {"SOFTDEV_ONE_QUEUE": "1"}}
EVERY_MODE = {name: value for mode in MODES.values() for name, value in mode.items()}
OF_RANKS = {name: layout for name, layout in {**LAYOUTS, **EXPERTS}.items() if layout[0] > 1}


@pytest.mark.parametrize("name,mode", [("ep2_cp2", EVERY_MODE), *later(
    *itertools.product(OF_RANKS, MODES.values()))])
def test_a_layout_ends_in_a_mode_of_the_device_with_the_same_bits(trained, name, mode, monkeypatch):
    model = {"model_type": "qwen3_moe"} if name in EXPERTS else {}
    run = functools.partial(trained, OF_RANKS[name], *FP32, *DEVICE, "run.steps=3", **model)
    usual = run()
    for variable, value in mode.items():
        monkeypatch.setenv(variable, value)
    assert curve(run()) == curve(usual)


@pytest.mark.parametrize("name,for_counts,settings", [
    ("one", 0, ['experts.balance="global"']), ("ep2", 12, ['memory.recompute="full"']),
    *later(("one", 0, []), ("ep2", 12, []), ("ep2_tp2_dp2", 12, []))])
def test_a_step_of_experts_waits_for_its_device_once_and_for_counts_with_ep(
        run, store, tmp_path, monkeypatch, name, for_counts, settings):
    """The host waits once for counts in each forward of the three layers with experts and the four
    micro batches, with rows to sort and to gather queued. It waits neither in a backward nor where a
    forward runs again."""
    ranks, keys = EXPERTS[name]
    path = tmp_path / "waits.jsonl"
    monkeypatch.setenv("SOFTDEV_TRACE", str(path))
    train(run, write_run(tmp_path, store, model_type="qwen3_moe"), *keys, *FP32, *DEVICE,
          *settings, "batch.micro_size=1", SHORT, UNCHECKED, ranks=ranks)
    for waits in waits_of(path):
        in_step = 1 + for_counts
        places = [i for i, w in enumerate(waits) if w["at"] == "event query"]
        # The run's end may wait behind its last step, which ends one wait after its last counts.
        last = max((i for i in places if waits[i]["queued"] >= 10), default=places[-1] - 1) + 1
        places = [i for i in places if i <= last][-in_step * (FEW - 2):]
        assert len(places) == in_step * (FEW - 2)
        # The host waits for nothing else in between.
        assert places == list(range(places[0], places[0] + len(places)))
        queued = [waits[i]["queued"] for i in places]
        assert sum(count >= 10 for count in queued) == for_counts * (FEW - 2), queued
        if for_counts == 0:
            assert len({waits[i]["device_allocations"] for i in places}) == 1


@pytest.mark.soak
@pytest.mark.parametrize("lacks", [("SOFTDEV_NO_COLLECTIVES", "1"),
                                   ("SOFTDEV_LACKS", "getStreamFromGlobalPool")])
def test_experts_on_a_device_that_lacks_something_have_the_same_bits(trained, monkeypatch, lacks):
    whole = trained(EXPERTS["ep2"], *FP32, *DEVICE, SHORT, model_type="qwen3_moe")
    monkeypatch.setenv(*lacks)
    lacking = trained(EXPERTS["ep2"], *FP32, *DEVICE, SHORT, model_type="qwen3_moe")
    assert lacking != whole and curve(lacking) == curve(whole)


@pytest.mark.parametrize("settings,warnings,why", [
    (PLAIN, 1, "in each layer: run.fused is false"), *later(
        ([], 0, ""),
        (['optimizer.groups=[{match="layers.0.mlp.experts.1.",frozen=true}]'], 1,
         "in layer 0: optimizer.groups freezes some"))])
def test_a_start_says_once_where_the_host_waits_for_products_of_experts(run, store, tmp_path,
                                                                        settings, warnings, why):
    done = train(run, write_run(tmp_path, store, model_type="qwen3_moe"), *FP32, *DEVICE, *settings,
                 "run.stop_after=1")
    said = done.stdout + done.stderr
    assert said.count("products of experts run one expert") == warnings
    assert why in said


@pytest.mark.parametrize("settings", [
    *later(['memory.recompute="full"', "memory.offload_activations=true"],
           ['memory.recompute="selective"'], ['memory.recompute="full"'])])
def test_what_is_recomputed_or_offloaded_has_the_same_losses(judged, settings):
    plain = judged(ONE, *FP32, *DEVICE, *PLAIN, *settings)
    assert not violations(plain, judged(ONE, *FP32, *PLAIN), SAME)
    fused = judged(ONE, *FP32, *DEVICE, *settings)
    assert not violations(fused, judged(ONE, *FP32, *DEVICE), SAME)


@pytest.mark.soak
def test_a_run_goes_on_from_a_device_to_a_cpu_and_back(run, store, trained, tmp_path):
    whole = trained(parallel(2, zero=1), *FP32, *DEVICE)
    path = write_run(tmp_path, store)
    train(run, path, *FP32, *PLAIN, "parallel.zero=1", "batch.micro_size=2", "run.stop_after=8",
          ranks=2)
    train(run, path, *FP32, *DEVICE, "parallel.tp=2", "batch.micro_size=4", "run.stop_after=14",
          ranks=2)
    train(run, path, *FP32, *DEVICE, "parallel.zero=3", "batch.micro_size=2", ranks=2)
    ours, theirs = (curve(p) for p in (tmp_path / "run", whole))
    assert len(ours) == len(theirs) == STEPS
    for (loss, _, _), (expected, _, _) in zip(ours, theirs):
        assert loss == pytest.approx(expected, rel=1e-5)
