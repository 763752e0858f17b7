"""`longhaul compile` on the stand-in of AWS's native backend, and the runs that follow it."""

import json

import pytest
from test_training import (DEVICE, FP32, LAYOUTS, ONE, PLAIN, TEN, build_store, compiled,  # noqa: F401
                           counters, curve, split, standin, step_dir, train, write_run)

ONLY = ['run.compile_cache="only"']


@pytest.fixture(scope="session")
def store(run, tmp_path_factory):
    return build_store(run, tmp_path_factory.mktemp("data"))


@pytest.fixture
def caches(standin, monkeypatch, tmp_path):  # noqa: F811
    """An empty cache for this test alone, and the compiler as a program."""
    monkeypatch.delenv("NEURON_STANDIN_NO_FORK")
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", str(tmp_path / "locks"))
    return tmp_path


def compile_run(run, config, *sets, ranks=1, processes=1, **options):
    words = [word for one in sets for word in ("--set", one)]
    return run("longhaul", "compile", config, "--ranks", ranks, *words, ranks=processes, **options)


def kernels(cache):
    return {path.name for path in cache.rglob("*.neff")}


def test_elsewhere_nothing_has_to_be_compiled(run, store, tmp_path):
    done = run("longhaul", "compile", write_run(tmp_path, store))
    assert "nothing has to be compiled on" in done.stdout
    assert not (tmp_path / "run").exists()


WITH_ALL = ["validation.every=2", 'log.prompts=["ab cd"]', "log.prompts_every=3", "log.prompt_tokens=4",
            "checkpoint.every=3", "log.layer_norms_every=4"]


@pytest.mark.parametrize("name", split(["one", *LAYOUTS], ["zero1"]))
def test_a_run_makes_no_key_that_compile_had_not_made(run, store, caches, name):
    ranks, sets = LAYOUTS.get(name, ONE)
    sets = [*FP32, *DEVICE, *sets, *WITH_ALL, f'data.validation=[{{ name = "v", path = "{store}" }}]']
    config = write_run(caches, store, pad_token_id=None)
    tokenizer = store.parent / "tokenizer" / "tokenizer.json"
    (caches / "model" / "tokenizer.json").write_text(tokenizer.read_text())
    done = compile_run(run, config, *sets, ranks=ranks, processes=ranks)
    made = kernels(caches / "cache")
    assert f"of {ranks} rank" in done.stdout and f"compiled: {len(made)} keys" in done.stdout
    assert len(made) > 100
    counters(caches)
    train(run, config, *sets, *ONLY, "run.steps=20", f"run.stop_after={TEN}", ranks=ranks)
    assert len(curve(caches / "run")) == TEN
    assert kernels(caches / "cache") == made
    assert all(process["compiles"] == 0 for process in counters(caches))
    again = compile_run(run, config, *sets, ranks=ranks)
    assert "compiled: 0 keys" in again.stdout and "the cache had every key" in again.stdout
    assert ("collectives" in again.stderr) == (ranks > 1)


def test_a_run_tells_what_it_compiles_late(run, store, caches, monkeypatch):
    """A start in the middle validates first when it has trained for some steps."""
    config = write_run(caches, store)
    sets = [*FP32, *DEVICE, "run.steps=6"]
    done = train(run, config, *sets, "run.stop_after=2")
    assert "compiled by rank 0 in the first 2 steps: " in done.stdout
    assert "warning: compiled after" not in done.stdout + done.stderr
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(caches / "other"))
    done = train(run, config, *sets, "validation.every=5",
                 f'data.validation=[{{ name = "v", path = "{store}" }}]')
    late = [line for line in (done.stdout + done.stderr).splitlines() if "compiled after" in line]
    assert late and all("first 2 steps of this start: aten::" in line for line in late)
    assert any("; compiled before: aten::" in line for line in late)


def test_another_shape_is_refused_by_name_and_the_checkpoint_stays(run, store, caches):
    config = write_run(caches, store)
    sets = [*FP32, *DEVICE, "run.steps=4"]
    compile_run(run, config, *sets, *ONLY)
    train(run, config, *sets, *ONLY, "run.stop_after=2")
    done = train(run, config, *sets, *ONLY, "batch.micro_size=4", check=False)
    assert done.returncode not in (0, 75)
    assert 'run.compile_cache = "only"' in done.stderr and "aten::" in done.stderr
    assert step_dir(caches / "run", 2).exists()
    train(run, config, *sets, "batch.micro_size=4")
    assert len(curve(caches / "run")) == 4


def test_a_cache_that_cannot_be_written_is_refused(run, store, caches, monkeypatch):
    monkeypatch.delenv("TORCH_NEURONX_NEFF_CACHE_DIR")
    config = write_run(caches, store)
    done = train(run, config, *FP32, *DEVICE, 'run.compile_cache_dir="/proc/cache"', check=False)
    assert done.returncode == 78
    assert "/proc/cache" in done.stderr and "run.compile_cache_dir" in done.stderr


def test_a_start_fills_its_cache(run, store, caches, monkeypatch):
    config = write_run(caches, store)
    sets = [*FP32, *DEVICE, "run.steps=3"]
    compile_run(run, config, *sets)
    monkeypatch.delenv("TORCH_NEURONX_NEFF_CACHE_DIR")
    own = f"run.compile_cache_dir={json.dumps(str(caches / 'own'))}"
    absent = train(run, config, *sets, *ONLY, own, check=False)
    assert absent.returncode == 78 and "longhaul compile" in absent.stderr
    train(run, config, *sets, *ONLY, own, f"run.compile_cache_from={json.dumps(str(caches / 'cache'))}")
    assert kernels(caches / "own") == kernels(caches / "cache")
