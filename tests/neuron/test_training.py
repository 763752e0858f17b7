"""Training by run.device = "neuron" on the stand-in of AWS's native backend, as a user types it."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from programs import BIN, SOURCE, command_of, split

sys.path.insert(0, str(SOURCE / "tests" / "dist"))

from layouts import (FEW, FP32, LAYOUTS, Tolerance, build_store, curve, relative, run_layout,  # noqa: E402
                     step_dir, train, violations, write_run)

STANDIN = BIN.parent / "neuron"
DEVICE = ['run.device="neuron"', f"run.neuron_python={json.dumps(sys.executable)}"]
PLAIN = ["run.fused=false"]
ONE = (1, [])
# Of fp32 over at most ten steps.
SAME = Tolerance(1e-5, 1e-5, 1e-5)
TEN = 10


@pytest.fixture(scope="session")
def store(run, tmp_path_factory):
    return build_store(run, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(autouse=True)
def standin(monkeypatch, tmp_path, compiled):
    """The environment of a machine with the backend, which refuses what the real one cannot do."""
    monkeypatch.setenv("PYTHONPATH", str(STANDIN))
    monkeypatch.setenv("PATH", f"{STANDIN / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(compiled))
    monkeypatch.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", str(compiled / "local"))
    monkeypatch.setenv("NEURON_STANDIN_STRICT", "1")
    monkeypatch.setenv("NEURON_STANDIN_NO_FORK", "1")  # test_standin.py starts the compiler
    monkeypatch.setenv("NEURON_STANDIN_CORES", "8")  # one for each rank of the largest layout
    monkeypatch.setenv("NEURON_STANDIN_COUNTERS", str(tmp_path / "counters"))
    # A test that looks at the compiler takes this away.
    monkeypatch.setenv("NEURON_STANDIN_NO_FORK", "1")
    return tmp_path


def counters(path):
    """What each process of the last run has counted."""
    found = [json.loads(file.read_text()) for file in sorted(path.glob("counters.*.json"))]
    for file in path.glob("counters.*.json"):
        file.unlink()
    return found


@pytest.fixture
def judged(run, store, tmp_path_factory):
    def call(layout, *sets, **changes):
        return run_layout(run, tmp_path_factory.mktemp("judged"), store, layout, *FP32, *sets,
                          **{"steps": FEW, "pad_token_id": None, **changes})
    return call


def assert_like_a_cpu(judged, standin, layout, **changes):
    ours = judged(layout, *DEVICE, **changes)
    said = counters(standin)
    assert len(said) == layout[0]
    stages = next((int(s[-1]) for s in layout[1] if s.startswith("parallel.pp=")), 1)
    for process in said:
        assert process["calls"] > 1000
        assert not process["fallbacks"] and not process["wide"]
        assert not process["strided_writes"] and not process["foreign"]
        # Collectives are those of the backend's process groups; transfers are not offered there.
        collectives = [key for key in process["keys"] if key.startswith("neuron::")]
        assert collectives or layout[0] == stages
    assert not violations(ours, judged(layout, *PLAIN, **changes), SAME)


@pytest.mark.parametrize("name", split(["one", *LAYOUTS], ["tp2_sequence"]))
def test_a_layout_on_the_backend_is_that_of_a_cpu(judged, standin, name):
    assert_like_a_cpu(judged, standin, LAYOUTS.get(name, ONE))


@pytest.mark.parametrize("family", split(["gemma3_text", "gpt_neox"], ["gemma3_text"]))
def test_a_family_on_the_backend_is_that_of_a_cpu(judged, standin, family):
    assert_like_a_cpu(judged, standin, ONE, model_type=family)


def keys_of(run, path, store, standin, steps):
    train(run, write_run(path, store, name=f"steps{steps}"), *FP32, *DEVICE, "run.steps=20",
          f"run.stop_after={steps}")
    (process,) = counters(standin)
    records = [json.loads(line) for line in (path / f"steps{steps}" / "metrics.jsonl").read_text().splitlines()]
    peaks = [record["memory_peak_bytes"] for record in records if "memory_peak_bytes" in record]
    assert peaks and 0 < max(peaks) <= process["peak_bytes"], "not the memory of the device"
    return set(process["keys"])


def test_no_step_after_the_second_compiles(run, store, standin, tmp_path):
    two, ten = (keys_of(run, tmp_path, store, standin, steps) for steps in (3, TEN))
    assert len(two) > 50
    assert ten == two


def test_a_run_goes_on_on_a_cpu_and_back(run, store, tmp_path):
    def part(name, steps, sets, source=None):
        resume = [f"checkpoint.resume={json.dumps(str(source))}"] if source else []
        train(run, write_run(tmp_path, store, name=name), *FP32, *PLAIN, *sets, *resume,
              "run.steps=9", f"run.stop_after={steps}")
        return curve(tmp_path / name), step_dir(tmp_path / name, steps)

    whole, _ = part("whole", 9, [])
    first, saved = part("first", 3, DEVICE)
    second, saved = part("second", 6, [], saved)
    third, _ = part("third", 9, DEVICE, saved)
    assert relative([p[0] for p in first + second + third], [p[0] for p in whole]) < 1e-5


def test_an_operation_without_a_kernel_ends_the_run_by_name_or_is_warned_of(run, store, tmp_path,
                                                                          monkeypatch):
    monkeypatch.setenv("NEURON_STANDIN_WITHOUT", "sigmoid")
    refused = train(run, write_run(tmp_path, store), *FP32, *DEVICE, "run.steps=3", check=False)
    assert refused.returncode == 78
    assert "operations ran on the CPU" in refused.stderr and "sigmoid" in refused.stderr
    warned = train(run, write_run(tmp_path, store, name="warned"), *FP32, *DEVICE, "run.steps=3",
                   'run.device_fallback="warn"')
    assert "warning: operations ran on the CPU" in warned.stdout + warned.stderr
    assert len(curve(tmp_path / "warned")) == 3


def refused(run, store, tmp_path, *sets, code=78, **options):
    done = train(run, write_run(tmp_path, store), *FP32, *DEVICE, "run.steps=3", *sets, check=False,
                 **options)
    assert done.returncode == code, done.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").read_text()
    return done.stderr


def test_a_run_that_does_not_fit_its_core_is_refused_before_its_first_step(run, store, tmp_path,
                                                                           monkeypatch):
    monkeypatch.setenv("NEURON_STANDIN_MEMORY", str(1 << 19))
    said = refused(run, store, tmp_path)
    assert "a rank needs weights" in said and "The device has" in said and "use more ranks" in said


def interpreter(path, **changed):
    """Makes an interpreter that says something else of itself."""
    path.write_text(f"""#!{sys.executable}
import json, subprocess, sys
said = subprocess.run([sys.executable, *sys.argv[1:]], check=True, capture_output=True, text=True)
print(json.dumps(json.loads(said.stdout) | {changed!r}))
""")
    path.chmod(0o755)
    return f"run.neuron_python={json.dumps(str(path))}"


@pytest.mark.parametrize("changed,part", [
    ({"version": "3.99.0"}, "its own libpython is needed"),
    ({"libpython": "/nowhere/libpython3.so"}, "/nowhere/libpython3.so cannot be opened"),
], ids=["another", "absent"])
def test_a_libpython_that_is_not_the_interpreters_is_refused(run, store, tmp_path, changed, part):
    assert part in refused(run, store, tmp_path, interpreter(tmp_path / "python3", **changed))


def test_a_package_that_makes_no_module_torch_neuron_is_refused(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", package(tmp_path, _C__dot__so="", __init____dot__py="""
import torch
torch.utils.rename_privateuse1_backend("neuron")
"""))
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    said = refused(run, store, tmp_path)
    assert 'registers the device "neuron, without torch.neuron"' in said and "install" in said


def package(path, **files):
    """Makes a package torch_neuronx of these files in front of the stand-in's."""
    folder = path / "site" / "torch_neuronx"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__dot__", ".")).write_text(text)
    return f"{folder.parent}:{STANDIN}"


def test_without_an_interpreter_the_run_is_refused(run, store, tmp_path):
    said = refused(run, store, tmp_path, 'run.neuron_python="/nowhere/python3"')
    assert 'no Python interpreter "/nowhere/python3"' in said and "run.neuron_python" in said


def test_without_the_backend_the_run_is_refused(run, store, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")
    said = refused(run, store, tmp_path)
    assert "has no torch_neuronx" in said and "install" in said


def test_the_package_of_pytorch_xla_is_told_from_the_native_one(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", package(tmp_path, __init____dot__py="import torch_xla\n"))
    said = refused(run, store, tmp_path)
    assert "not the native backend" in said and "install" in said


def test_another_pytorch_is_refused_with_both_versions(run, store, tmp_path, monkeypatch):
    torch = tmp_path / "site" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text("__version__ = '2.9.1'\n")
    monkeypatch.setenv("PYTHONPATH", f"{torch.parent}:{STANDIN}")
    said = refused(run, store, tmp_path)
    assert "PyTorch 2.9.1" in said and "2.13" in said and "install" in said


def test_an_older_backend_is_refused(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_STANDIN_VERSION", "2.9.0.1")
    said = refused(run, store, tmp_path)
    assert "torch_neuronx 2.9.0.1" in said and "older" in said


def test_trn1_is_refused_with_what_to_take(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_STANDIN_INSTANCE", "trn1.32xlarge")
    said = refused(run, store, tmp_path)
    assert "trn1.32xlarge" in said and "trn2" in said


def test_one_core_for_two_ranks_is_refused_with_what_to_do(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "1")
    said = refused(run, store, tmp_path, ranks=2)
    assert "ranks 0 and 1 of this machine would take the same core 1" in said
    assert "unset the variable" in said


def test_a_setting_that_lets_operations_fall_back_is_refused(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "0")
    assert "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS" in refused(run, store, tmp_path)


def test_a_mixture_is_refused(run, store, tmp_path):
    done = train(run, write_run(tmp_path, store, model_type="mixtral"), *FP32, *DEVICE, check=False)
    assert done.returncode == 78
    assert "compiles each shape of an operation" in done.stderr


def test_a_parameter_that_is_larger_than_a_tensor_may_be_is_refused_with_its_name(run, store, tmp_path):
    done = train(run, write_run(tmp_path, store, vocab_size=12_000_000), *FP32, *DEVICE, check=False)
    assert done.returncode == 78
    assert "embed_tokens.weight takes 4.6 GB of fp32" in done.stderr and "parallel.tp" in done.stderr


def test_where_a_kernel_cannot_be_made_or_kept_the_run_ends_by_name_and_the_checkpoint_stays(
        run, store, tmp_path, monkeypatch):
    config = write_run(tmp_path, store)
    train(run, config, *FP32, *DEVICE, "run.steps=4", "run.stop_after=2")
    saved = step_dir(tmp_path / "run", 2)

    def without_kernels():
        with monkeypatch.context() as changed:
            changed.delenv("NEURON_STANDIN_NO_FORK")
            changed.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "empty"))
            changed.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", str(tmp_path / "local"))
            done = train(run, config, *FP32, *DEVICE, "run.steps=4", check=False)
        assert done.returncode not in (0, 75)
        return done.stderr

    monkeypatch.setenv("NEURON_STANDIN_CC_FAIL", "aten::mul.Tensor")
    said = without_kernels()
    assert "neuronx-cc" in said and "mul" in said
    monkeypatch.delenv("NEURON_STANDIN_CC_FAIL")
    # A disk is full: the copy by which the watched compiler tries the cache fails so.
    (tmp_path / "full").mkdir()
    (tmp_path / "empty").rename(tmp_path / "before")
    (tmp_path / "full" / "cp").write_text("#!/bin/sh\necho 'cp: No space left on device' >&2\nexit 1\n")
    (tmp_path / "full" / "cp").chmod(0o755)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{tmp_path / 'full'}:{path}")
    said = without_kernels()
    assert "No space left on device" in said and "aten::" in said and str(tmp_path / "empty") in said
    monkeypatch.setenv("PATH", path)
    train(run, config, *FP32, *DEVICE, "run.steps=4")
    assert saved.exists() and len(curve(tmp_path / "run")) == 4


def start(config, *sets, verb=("train",)):
    words = [w for s in (*FP32, *DEVICE, "run.steps=400", *sets) for w in ("--set", s)]
    command, environment = command_of("longhaul", [*verb, config, *words])
    return subprocess.Popen(command, env={**environment, "OMP_NUM_THREADS": "1"},
                            stderr=subprocess.PIPE, text=True)


def wait_for_steps(run_dir, started, steps):
    metrics = run_dir / "metrics.jsonl"
    limit = time.monotonic() + 300
    while not metrics.exists() or len(metrics.read_text().splitlines()) < steps:
        assert started.poll() is None and time.monotonic() < limit, started.stderr.read()
        time.sleep(0.05)


def last_saved(run_dir):
    return max(run_dir.glob("checkpoints/*/manifest.json")).parent


def test_a_signal_saves_and_ends_the_run_although_an_interpreter_is_loaded(store, tmp_path):
    """The second start goes on from what the first one has saved."""
    config = write_run(tmp_path, store)
    saved = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with start(config) as started:
            wait_for_steps(tmp_path / "run", started, 3 + sum(saved))
            assert maps_libpython(started.pid)
            started.send_signal(number)
            _, said = started.communicate(timeout=200)
        assert started.returncode == 75, said
        assert "Traceback" not in said and "KeyboardInterrupt" not in said
        saved.append(int(last_saved(tmp_path / "run").name[5:]))
        assert f"stopped by {number.name} after step {saved[-1]}; saved" in (
            tmp_path / "run" / "log.txt").read_text()
    assert saved[0] < saved[1]


def maps_libpython(pid):
    return "libpython" in pathlib.Path(f"/proc/{pid}/maps").read_text()


def test_a_killed_rank_ends_the_others_by_name_and_the_run_goes_on(store, tmp_path, run):
    """One rank of two is killed once steps are done. The launcher, which has no interpreter, ends the
    run with the rank's name, and the run goes on later."""
    config = write_run(tmp_path, store)
    sets = [*LAYOUTS["tp2_sequence"][1], "checkpoint.every=5", "resilience.max_restarts=0"]
    with start(config, *sets, verb=("launch", "-n", "2")) as started:
        wait_for_steps(tmp_path / "run", started, 7)
        family = descendants(started.pid)
        ranks = [pid for pid in family if maps_libpython(pid)]
        assert len(ranks) == 2 and len(family) > 2
        assert not maps_libpython(started.pid)
        os.kill(ranks[1], signal.SIGKILL)
        started.communicate(timeout=200)
    assert started.returncode != 0
    assert re.search(r"stopped: rank [01] on .* killed by signal 9 in step", (
        tmp_path / "run" / "log.txt").read_text())
    train(run, config, *LAYOUTS["tp2_sequence"][1], *FP32, *DEVICE, "run.steps=400",
          "run.stop_after=12", ranks=2)
    assert step_dir(tmp_path / "run", 12).exists()


def descendants(pid):
    """The processes that a process has started, and those that these have started."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


BEATS = """
import os, threading, time
def beat(worst=0.0, last=None):
    while True:
        now = time.monotonic()
        worst = max(worst, now - (last or now))
        last = now
        with open(f"{FOLDER}/{os.getpid()}", "w") as file:
            file.write(f"{worst}")
        time.sleep(0.01)
threading.Thread(target=beat, daemon=True).start()
"""


@pytest.mark.soak
def test_other_threads_of_the_interpreter_run_while_a_rank_waits_for_another(run, store, tmp_path,
                                                                            monkeypatch):
    """One stage loses four seconds in each update, and the other waits for it without the lock."""
    beats = tmp_path / "beats"
    beats.mkdir()
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"FOLDER = {str(beats)!r}\n{BEATS}")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{STANDIN}")
    train(run, write_run(tmp_path, store), *FP32, *DEVICE, *LAYOUTS["pp2"][1], "run.steps=4",
          'debug.delays=[{ phase = "update", seconds = 4, rank = 0 }]', ranks=2)
    worst = [float(file.read_text()) for file in beats.iterdir()]
    assert len(worst) >= 2 and max(worst) < 2
