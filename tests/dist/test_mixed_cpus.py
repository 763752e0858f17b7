"""Ranks whose CPUs have different instruction sets hold the same copies."""

import os
import subprocess

import pytest
from layouts import FP32, LAYOUTS, parallel, write_run
from programs import BIN, later

STEPS = 6
TIED = {"tie_word_embeddings": True}
# LibTorch and its libraries are told to use still older instructions, and composite forms replace
# our own kernels. So ranks round differently also on a machine whose best set is AVX2.
WEAK = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE"}


@pytest.fixture
def mixed(store, tmp_path):
    """Runs a layout whose last half of the ranks are on weaker CPUs. Compares the copies after each
    step."""

    def call(layout, *sets, fault=None, **model_changes):
        ranks, keys = layout
        path = write_run(tmp_path, store, **model_changes)
        words = [w for s in (*keys, *sets, "resilience.checksum_every=1") for w in ("--set", s)]
        arguments = [path, STEPS, *words, *(["--fault", fault] if fault else [])]
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        for program, weak in (("longhaul_layout_tool", {}), ("longhaul_avx2_tool", WEAK)):
            command += [":"] * bool(weak) + ["-n", str(ranks // 2), "env"]
            command += [f"{name}={value}" for name, value in weak.items()]
            command += [str(BIN / program), *map(str, arguments)]
            command += ["--set", "run.fused=false"] * bool(weak)
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return subprocess.run(command, capture_output=True, text=True, timeout=200,
                              env={**os.environ, **root, "OMP_NUM_THREADS": "1"})

    return call


@pytest.mark.parametrize("layout,sets,model", [
    (LAYOUTS["tp2"], FP32, {}),
    (LAYOUTS["tp4"], (), {}),
    (parallel(2, pp=2), (), TIED),
    (LAYOUTS["dp2"], (), {}),
    *later((LAYOUTS["tp2"], (), {}), (LAYOUTS["tp2_sequence"], (), {})),
], ids=["tp2_fp32", "key_heads", "tied_embedding", "dp2", "tp2_bf16", "tp2_sequence"])
def test_their_copies_are_the_same_bit_for_bit(mixed, layout, sets, model):
    result = mixed(layout, *sets, **model)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == STEPS


def test_copies_would_differ_if_each_rank_took_its_own_gradient(mixed):
    result = mixed(LAYOUTS["tp2"], *FP32, fault="no_first_gradient")
    assert result.returncode == 1
    assert "[corruption] step 1:" in result.stderr, result.stderr
    assert "rank 0, 1 in weight of model.layers." in result.stderr, result.stderr
