"""eval and generate on several ranks say what one rank says, whoever holds the weights."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from layouts import FP32, LAYOUTS, parallel, step_dir, train, write_run
from load_limits import MB
from programs import command_of, later, split

# The relative difference that layouts may have in fp32.
TOLERANCE = 1e-6
STEPS = 4
ALL = ["validation.batches=0"]

# For each case: the number of ranks, and the words that lay a model out on them. Without words the
# layout is that of the run, here of one rank.
EVALUATED = {
    "tp2": (2, ["--tp", 2]),
    "tp4": (4, ["--tp", 4]),  # two ranks for each key head
    "pp2": (2, ["--pp", 2]),
    "tp2_pp2": (4, ["--tp", 2, "--pp", 2]),
    "cp2": (2, ["--cp", 2]),
    "dp2": (2, []),
    "zero3": (2, ["--zero", 3]),
}
GREEDY = []
SAMPLED = ["--temperature", 1.0, "--seed", 7]


def validated(store):
    return f'data.validation=[{{name="all", path="{store}"}}]'


@pytest.fixture(scope="module")
def of_one_rank(trained, store):
    return trained((1, []), *FP32, *ALL, validated(store), f"run.steps={STEPS}",
                   "checkpoint.every=2")


def evaluate(run, model, store, ranks=1, *words, **options):
    return run("longhaul", "eval", model, "--data", store, "--seq-len", 32, "--micro-size", 2,
               "--json", *words, ranks=ranks, **options)


def evaluated(run, model, store, ranks=1, *words):
    return json.loads(evaluate(run, model, store, ranks, *words).stdout)


def test_bits_per_byte_are_told_only_where_all_tokens_are_read(run, of_one_rank, store):
    assert evaluated(run, of_one_rank, store)["bits_per_byte"] > 0
    assert "bits_per_byte" not in evaluated(run, of_one_rank, store, 1, "--pack", "whole")


def last_validation(run_dir):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "validation" in line][-1]


@pytest.fixture(scope="module")
def loss(run, of_one_rank, store):
    result = evaluated(run, of_one_rank, store)
    assert result["loss"] == last_validation(of_one_rank)
    return result


@pytest.mark.parametrize("name", split(EVALUATED, ["tp2_pp2", "zero3"]))
def test_every_layout_evaluates_what_one_rank_does(run, of_one_rank, store, loss, name):
    ranks, words = EVALUATED[name]
    found = evaluated(run, of_one_rank, store, ranks, *words)
    assert found["loss"] == pytest.approx(loss["loss"], rel=TOLERANCE, abs=0)
    for key in ("targets", "sequences", "seq_len"):
        assert found[key] == loss[key]
    assert found["layout"]["world"] == ranks
    if "tp" in name or "pp" in name:  # the two ends of a pipeline are not alike
        assert found["rank_weight_bytes"] < loss["rank_weight_bytes"] * (1 / ranks + 0.1)


@pytest.mark.parametrize("name", [
    pytest.param("tp2_pp2", marks=pytest.mark.soak),
    pytest.param("cp2_dp2_zero3", marks=pytest.mark.soak),
    "pp2_interleaved"])
def test_without_a_layout_the_ranks_take_the_runs(run, trained, store, name):
    ranks, keys = LAYOUTS[name]
    directory = trained((ranks, keys), *FP32, *ALL, validated(store), "run.stop_after=1")
    found = evaluated(run, directory, store, ranks)
    assert found["loss"] == pytest.approx(last_validation(directory), rel=TOLERANCE, abs=0)
    asked = dict(key.split("=") for key in keys)
    for axis in ("tp", "pp", "cp", "zero"):
        assert found["layout"][axis] == int(asked.get(f"parallel.{axis}", axis != "zero" or 1))
    alone = evaluated(run, directory, store)
    assert alone["loss"] == pytest.approx(found["loss"], rel=TOLERANCE, abs=0)
    assert alone["layout"]["world"] == 1


@pytest.mark.soak
def test_a_hugging_face_directory_is_evaluated_by_several_ranks(run, of_one_rank, store, loss,
                                                                 tmp_path):
    run("longhaul", "export", of_one_rank, "--out", tmp_path / "hf")
    found = evaluated(run, tmp_path / "hf", store, 4, "--tp", 2, "--pp", 2)
    assert found["loss"] == pytest.approx(loss["loss"], rel=TOLERANCE, abs=0)
    assert evaluated(run, tmp_path / "hf", store, 2)["layout"]["dp"] == 2


def test_only_one_rank_speaks(run, of_one_rank, store):
    words = ["longhaul", "eval", of_one_rank, "--data", store, "--seq-len", 32, "--max-sequences", 8]
    alone = run(*words).stdout.splitlines()
    lines = run(*words, "--tp", 2, ranks=2).stdout.splitlines()
    told = [line for line in lines if line.startswith("layout")]
    assert len(told) == 1 and "tp 2" in told[0]
    assert [line.split()[0] for line in lines if line not in told] == \
        [line.split()[0] for line in alone]


@pytest.mark.soak
def test_ranks_go_back_together_from_a_damaged_checkpoint(run, of_one_rank, store, loss, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(of_one_rank, copy)
    data = next(step_dir(copy, STEPS).glob("*.safetensors"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    done = evaluate(run, copy, store, 2, "--tp", 2)
    assert done.stderr.count("is damaged") == 1
    older = evaluated(run, step_dir(of_one_rank, 2), store)["loss"]
    assert json.loads(done.stdout)["loss"] == pytest.approx(older, rel=TOLERANCE, abs=0)
    assert older != loss["loss"]


# --- memory

LARGE = 155_136_000  # bytes of weights in fp32, nearly all of them in blocks
READING = 32 * MB  # what is read ahead stands beside the weights
# The share of these bytes that a rank holds. With zero 3 it has its share, and two of eight blocks
# whole: one in use and one on its way.
PARTS = {"tp2": 1 / 2, "pp2": 1 / 2, "zero3": 1 / 2 + 2 / 8}


@pytest.fixture(scope="module")
def large(run, store, tmp_path_factory):
    path = tmp_path_factory.mktemp("large")
    config = write_run(path, store, hidden_size=384, intermediate_size=3840, num_hidden_layers=8,
                       head_dim=64)
    train(run, config, *FP32, "run.stop_after=1", "batch.global_size=2", "data.seq_len=8")
    return path / "run"


@pytest.fixture(scope="module")
def peak(of_one_rank, store):
    """Resident bytes of the largest rank that evaluates a model."""
    report = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")

    def call(model, ranks, *words):
        command, environment = command_of(
            "longhaul", ["eval", model, "--data", store, "--seq-len", 32, "--max-sequences", 2,
                         *words], ranks)
        done = subprocess.run([sys.executable, "-c", report, *command], env=environment, text=True,
                              check=True, capture_output=True, timeout=100)
        return 1024 * int(done.stdout.splitlines()[-1])

    return call


@pytest.mark.parametrize("name", split(PARTS, ["tp2"]))
def test_a_rank_has_room_for_its_part_only(large, of_one_rank, peak, name):
    ranks, words = EVALUATED[name]
    grown = peak(large, ranks, *words) - peak(of_one_rank, ranks, *words)
    part = PARTS[name] * LARGE
    assert 0.95 * part < grown < part + READING < LARGE, f"{grown / MB:.0f} MB"


def test_the_measure_sees_a_rank_that_holds_everything(large, of_one_rank, peak):
    assert peak(large, 1) - peak(of_one_rank, 1) > 0.95 * LARGE


# --- generate

def generate(run, model, store, ranks, *words, **options):
    return run("longhaul", "generate", model, "--prompt", "ab cde", "--tokenizer",
               store.parent / "tokenizer", "--max-new-tokens", 16, "--json", *words, ranks=ranks,
               **options)


@pytest.fixture(scope="module")
def texts(run, of_one_rank, store):
    done = {}

    def call(*words):
        if words not in done:
            done[words] = json.loads(generate(run, of_one_rank, store, 1, *words).stdout)
        return done[words]

    return call


@pytest.mark.parametrize("name,how", [
    ("tp2_pp2", SAMPLED), ("tp4", GREEDY),
    *later(("tp2", GREEDY), ("pp2", SAMPLED), ("tp2", SAMPLED), ("pp2", GREEDY), ("tp2_pp2", GREEDY),
           ("tp4", SAMPLED))])
def test_every_layout_writes_what_one_rank_does(run, of_one_rank, store, texts, name, how):
    ranks, words = EVALUATED[name]
    found = json.loads(generate(run, of_one_rank, store, ranks, *how, *words).stdout)
    assert found == texts(*how)
    assert len(found["ids"]) > 4


def test_a_sampled_text_is_another_than_the_likeliest(texts):
    assert texts(*GREEDY) != texts(*SAMPLED)


def test_a_text_passes_every_virtual_stage(run, trained, store):
    directory = trained(LAYOUTS["pp2_interleaved"], *FP32, *ALL, validated(store), "run.stop_after=1")
    found = json.loads(generate(run, directory, store, 2).stdout)
    assert found == json.loads(generate(run, directory, store, 1).stdout)


# --- experts

SOME = ["--dtype", "fp32", "--max-sequences", 48]
NEAR = 1e-5  # rounding may exchange two experts of a token that are almost as likely
# For each case: the model, the ranks, the words, and the number of ranks over which the 8 experts
# of a layer then lie.
SPREAD = {
    "hf_2": ("hf", 2, [], 2),
    "hf_4_tp2": ("hf", 4, ["--tp", 2], 2),
    "hf_4_pp2": ("hf", 4, ["--pp", 2], 2),
    "hf_2_cp2": ("hf", 2, ["--cp", 2], 2),
    "hf_4_zero3": ("hf", 4, ["--zero", 3], 4),
    "hf_3": ("hf", 3, [], 1),
    "hf_4_ep2": ("hf", 4, ["--ep", 2], 2),
    "hf_2_ep1": ("hf", 2, ["--ep", 1], 1),
    "run_4": ("run", 4, [], 2),  # as the run
    "run_3": ("run", 3, [], 1),
    "run_4_tp2": ("run", 4, ["--tp", 2], 2),
    "run_4_zero1": ("run", 4, ["--zero", 1], 4),
}


@pytest.fixture(scope="module")
def mixture(run, trained, tmp_path_factory):
    """A run on four ranks whose experts lie over two, and its Hugging Face directory."""
    directory = trained(parallel(4, 1, ep=2), *FP32, "run.steps=8", model_type="qwen3_moe")
    path = tmp_path_factory.mktemp("mixture") / "hf"
    run("longhaul", "export", directory, "--out", path, "--dtype", "fp32")
    return {"run": directory, "hf": path}


@pytest.fixture(scope="module")
def mixture_alone(run, mixture, store):
    return {kind: evaluated(run, path, store, 1, *SOME)
            for kind, path in mixture.items()}


@pytest.mark.parametrize("name", split(SPREAD, ["hf_4_tp2", "hf_2_ep1", "run_4"]))
def test_experts_lie_over_the_ranks_that_there_are(run, mixture, mixture_alone, store, name):
    kind, ranks, words, ep = SPREAD[name]
    found = evaluated(run, mixture[kind], store, ranks, *SOME, *words)
    alone = mixture_alone[kind]
    assert found["layout"].get("ep", 1) == ep
    assert found["loss"] == pytest.approx(alone["loss"], rel=NEAR, abs=0)
    assert (found["rank_weight_bytes"] < alone["rank_weight_bytes"]) == (ep > 1)


@pytest.mark.parametrize("kind,ranks,words,how", [
    ("hf", 2, [], GREEDY),
    *later(("run", 2, ["--ep", 2], GREEDY), ("hf", 4, ["--tp", 2], GREEDY),
           ("run", 4, ["--pp", 2], GREEDY), ("hf", 4, ["--ep", 4], SAMPLED))])
def test_ranks_with_all_experts_together_write_what_one_rank_does(run, mixture, store, kind, ranks,
                                                                  words, how):
    one, found = (json.loads(generate(run, mixture[kind], store, n, "--dtype", "fp32", *how,
                                      *more).stdout) for n, more in ((1, []), (ranks, words)))
    assert found == one and found["ids"]


@pytest.mark.parametrize("kind,ranks,words,said", [
    ("hf", 3, [], "3 ranks are dp 3 of tp 1 x pp 1 with ep 1, which splits data"),
    ("hf", 2, ["--ep", 1], "start tp * pp * ep ranks and give --tp, --pp and --ep"),
    *later(("run", 4, [], "4 ranks are dp 4 of tp 1 x pp 1 with ep 2, which splits data"),
           ("hf", 3, ["--ep", 3], "parallel.ep = 3 does not divide the 8 experts"),
           ("hf", 2, ["--ep", 4], "2 ranks are dp 2 of tp 1 x pp 1 with ep 4"))])
def test_a_text_is_not_split_over_ranks_that_do_not_share_experts(run, mixture, store, kind, ranks,
                                                                  words, said):
    assert said in told(generate(run, mixture[kind], store, ranks, *words, check=False))


def test_a_model_without_experts_spreads_none(run, of_one_rank, store):
    for verb in (evaluate, generate):
        assert "parallel.ep = 2 spreads experts over ranks" in told(
            verb(run, of_one_rank, store, 2, "--ep", 2, check=False))


# --- what does not fit

def told(done):
    """The one line of an error."""
    assert done.returncode == 78
    found = re.findall("longhaul: error: (.*)", done.stderr)
    assert len(found) == 1, done.stderr
    return found[0]


@pytest.mark.parametrize("ranks,words", [(1, ["--tp", 2]), (2, ["--tp", 2, "--pp", 2])])
def test_a_layout_that_does_not_fit_is_refused_as_config_refuses_it(run, of_one_rank, store, ranks,
                                                                    words):
    sets = [w for key, value in zip(words[::2], words[1::2])
            for w in ("--set", f"parallel.{key[2:]}={value}")]
    config = run("longhaul", "config", of_one_rank / "config.toml", "--ranks", ranks, *sets,
                 check=False)
    wanted = told(config).split(": ", 1)[-1]
    assert "do" in wanted and "divide into model replicas" in wanted
    assert wanted.split(": ")[-1] in told(evaluate(run, of_one_rank, store, ranks, *words,
                                                   check=False))
    assert wanted.split(": ")[-1] in told(generate(run, of_one_rank, store, ranks, *words,
                                                   check=False))


def test_a_text_is_not_split_over_data_ranks(run, trained, of_one_rank, store):
    line = told(generate(run, of_one_rank, store, 4, "--tp", 2, check=False))
    assert "4 ranks are dp 2 of tp 2 x pp 1" in line and "--tp and --pp" in line
    directory = trained(LAYOUTS["cp2_dp2_zero3"], *FP32, "run.stop_after=1")
    assert "the layout has cp 2" in told(generate(run, directory, store, 4, check=False))
