"""For a person's mistakes there is a clear error, and nothing is half written or lost."""

import contextlib
import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from datasets import Dataset
from refusals import contents, refused, refused_without_a_trace, shards, training_refused
from runs import PACE, curve, steps_of, write_config
from small_model import TRAINING, documents, make_model, make_tokenizer

# --- files that are not there

@pytest.mark.parametrize("arguments,words", [
    (["train", "nowhere.toml"], ["nowhere.toml: no such file", "recipe list"]),
    (["config", "nowhere.toml"], ["nowhere.toml: no such file"]),
    (["eval", "nowhere", "--data", "data/mine"], ["nowhere: no such file or directory"]),
    (["eval", "models/small", "--data", "nowhere"], ["nowhere", "no such"]),
    (["export", "nowhere", "--out", "out"], ["nowhere: no such file or directory"]),
    (["generate", "nowhere", "--prompt", "x"], ["nowhere: no such file or directory"]),
    (["inspect", "nowhere"], ["nowhere: no such file or directory"]),
    (["verify", "nowhere"], ["nowhere: no such file or directory"]),
    (["data", "build", "nowhere/*.txt", "--tokenizer", "models/small", "--out", "out"],
     ["'nowhere/*.txt' matches no file", "'corpus/*.jsonl.gz'"]),
    (["data", "build", "corpus/*.txt", "--tokenizer", "nowhere", "--out", "out"],
     ["nowhere", "o such file"]),
    (["data", "train-tokenizer", "nowhere/*.txt", "--out", "out"],
     ["'nowhere/*.txt' matches no file"]),
], ids=lambda value: "-".join(value[:2]).replace("/", "_") if isinstance(value, list) else None)
def test_a_missing_file_is_named(run, root, arguments, words):
    refused_without_a_trace(run, root, arguments, *words)


@pytest.mark.parametrize("key", [
    'init.weights="nowhere"', 'model.config="nowhere"', 'data.train=[{path="nowhere"}]',
    'data.validation=[{name="x", path=["data/mine-val", "nowhere"]}]'])
def test_a_missing_file_in_a_configuration_is_named(run, root, key):
    training_refused(run, root, [key], "nowhere", "o such file or directory")


BUILD = ["data", "build", "corpus/*.txt", "--tokenizer", "models/small"]


@pytest.mark.parametrize("arguments,meant", [
    (["train", "run.toml", "--set", "run.dir=~/runs/a"], "{home}/runs/a"),
    (["train", "run.toml", "--set", 'checkpoint.dir="$HOME/saves"'], "{home}/saves"),
    (["train", "~/run.toml"], "{home}/run.toml"),
    (["config", "run.toml", "--set", 'data.train=[{path="~/data"}]'], "{home}/data"),
    ([*BUILD, "--out", "~/out"], "{home}/out"),
    ([*BUILD, "--out=~/out"], "{home}/out"),
    ([*BUILD, "--out", "${HOME}/out"], "{home}/out"),
    (["data", "build", "~/corpus/*.txt", "--tokenizer", "models/small", "--out", "out"],
     "{home}/corpus/*.txt"),
    (["export", "models/small", "--out=$LONGHAUL_TEST_UNSET/out"], "the whole path"),
    (["inspect", "~root"], "/root"),
    (["eval", "models/small", "--data", "$HOME/data"], "{home}/data"),
], ids=lambda value: "-".join(value[:1] + value[-1:]).replace("/", "_") if isinstance(value, list) else "")
def test_a_path_that_only_a_shell_would_have_replaced_is_no_name(run, root, arguments, meant):
    refused_without_a_trace(run, root, arguments, "only a shell replaces ~ and $NAME",
                            meant.format(home=pathlib.Path.home()))


def test_text_that_begins_so_is_text(run, root):
    run("longhaul", "generate", "models/small", "--prompt", "~ $HOME", "--max-new-tokens", "1",
        cwd=root)


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0",
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize("words,variables,said", [
    (["train", "run.toml"], TORCHRUN, "type `longhaul launch -n 2 run.toml`"),
    (["train", "run.toml"], {**TORCHRUN, "RANK": "1", "LOCAL_RANK": "1"}, "(rank 1 of 2)"),
    (["train", "run.toml"], {"RANK": "1", "WORLD_SIZE": "2"}, "no MPI started this process"),
    (["launch", "-n", "1", "run.toml"], TORCHRUN, "type `longhaul launch -n 1 run.toml`, once"),
    (["eval", "models/small", "--data", "data/mine"], TORCHRUN,
     "type `mpirun -n 2 longhaul eval models/small --data data/mine`"),
])
def test_another_launcher_than_mpi_is_refused_with_the_command_to_type(run, root, words, variables, said):
    before = contents(root)
    refused(run("longhaul", *words, check=False, cwd=root, env=variables), said)
    assert contents(root) == before


def test_a_world_size_alone_is_a_warning(run, root):
    done = run("longhaul", "train", "run.toml", "--set", "run.steps=1", cwd=root, env={"WORLD_SIZE": "2"})
    assert "warning: the environment says WORLD_SIZE=2" in done.stderr
    assert "`longhaul launch -n 2 run.toml --set run.steps=1`" in done.stderr
    assert len(steps_of(root / "runs/mine")) == 1


ODD_NUMBERS = ['"odd": NaN', '"odd": [-Infinity, {"x": Infinity}]', '"odd": 1e999',
               '"odd": 1000000000000000019884624838656']


@pytest.mark.parametrize("member", ODD_NUMBERS)
def test_numbers_that_json_has_not_stop_nothing_where_nobody_reads_them(run, root, member):
    model = root / "models/small"
    files = ["config.json", "generation_config.json", "tokenizer_config.json",
             "special_tokens_map.json", "model.safetensors.index.json"]
    for name in files:
        path = model / name
        text = path.read_text() if path.exists() else "{}"
        assert text.rstrip().endswith("}")
        inside = text.strip()[1:-1].strip()
        path.write_text("{" + member + (", " + inside if inside else "") + "}")
    line = json.dumps({"text": "some words"})
    (root / "corpus/more.jsonl").write_text("{" + member + ", " + line[1:] + "\n")
    run("longhaul", "inspect", model)
    run("longhaul", "data", "build", root / "corpus/more.jsonl", "--tokenizer", model, "--out", root / "more")
    run("longhaul", "train", "run.toml", "--set", "run.steps=1", cwd=root)
    run("longhaul", "export", root / "runs/mine", "--out", root / "out")
    for name in files[:-1]:
        exported = json.loads((root / "out" / name).read_text(), parse_constant=str, parse_float=str)
        given = json.loads("{" + member + "}", parse_constant=str, parse_float=str)
        assert exported["odd"] == given["odd"], name


def test_numbers_that_json_has_not_are_refused_by_name_where_they_are_read(run, root):
    path = root / "models/small/config.json"
    text = path.read_text()
    for name, odd in [("rms_norm_eps", "NaN"), ("hidden_size", "100000000000000000000"),
                      ("rope_theta", "Infinity")]:
        config = json.loads(text)
        config.pop("rope_parameters", None)
        config[name] = "HERE"
        path.write_text(json.dumps(config).replace('"HERE"', odd))
        refused(run("longhaul", "train", "run.toml", check=False, cwd=root),
                f"config.json: {name} expected", odd)


@pytest.mark.parametrize("arguments,words", [
    ([], ["no verb", "train", "--help"]),
    (["trian", "run.toml"], ["there is no verb 'trian'", "did you mean 'train'"]),
    (["rehearse", "run.toml"], ["give --ranks N or --nodes N"]),
    (["rehearse", "run.toml", "--nodes", "2"], ["--nodes needs --hardware or --ranks-per-node"]),
    (["trian", "--help"], ["trian", "train"]),
    (["finetune", "run.toml"], ["there is no verb 'finetune'", "longhaul train RUN.toml"]),
    (["train-tokenizer", "corpus"], ["did you mean 'data train-tokenizer'?"]),
    (["data", "tokenize", "corpus"], ["there is no verb 'data tokenize'", "longhaul data build"]),
    (["data", "--output", "out"], ["no verb was given behind data", "data build"]),
    (["recipe", "llama2-7b"], ["there is no verb 'recipe llama2-7b'", "longhaul recipe show"]),
    (["run.yaml"], ["no verb before run.yaml", "run files are TOML"]),
    (["--verison"], ["did you mean --version?"]),
    (["--config", "run.toml", "train"], ["the verb comes first, as in longhaul train"]),
    (["generate", "models/small", "--prompt", "x", "--device", "gpu"], ["did you mean \"cuda\"?"]),
    (["export", "models/small", "--out", "out", "--dtype", "float16"], ["did you mean fp16?"]),
    (["export", "models/small", "--out", "gs://bucket/out"], ["longhaul opens no addresses but"]),
    (["export", "models/small", "--out", "s3://bucket"], ["names a whole bucket"]),
    (["export", "models/small", "--out", "s3://A:B@bucket/m"], ["holds no credentials"]),
    (["data", "export", "data/mine", "--seq-len", "8", "--out", "s3://bucket/out"],
     ["the address of an object, which has no use here"]),
    (["import", "--flags", "x --lr 1", "--out", "s3://bucket/run.toml"], ["this is a run file"]),
    (["eval"], ["model is required", "longhaul eval --help"]),
    (["eval", "models/small", "--data", "data/mine", "--frob"], ["--frob"]),
    (["eval", "models/small", "--data", "data/mine", "--micro-size", "0"], ["--micro-size"]),
    (["generate", "models/small", "--prompt", "x", "--dtype", "fp8"], ["fp8", "bf16"]),
    (["export", "models/small", "--out", "out", "--shard-size", "huge"], ["'huge'", "5GB"]),
    (["data", "build", "corpus/*.txt", "--tokenizer", "models/small", "--out", "out",
      "--holdout", "half"], ["--holdout 'half'", "1%"]),
], ids=lambda value: "-".join(value[:1]) if isinstance(value, list) else None)
def test_a_wrong_command_line(run, root, arguments, words):
    refused_without_a_trace(run, root, arguments, *words)


VERBS = ["bench", "compare", "compile", "config", "data", "data build", "data train-tokenizer", "docs", "doctor",
         "drill", "eval", "export", "generate", "import", "inspect", "launch", "new", "plan", "recipe", "recipe list",
         "recipe show", "rehearse", "report", "serve", "submit", "supervise", "train", "try", "verify",
         "watch", "why"]


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_every_verb_has_help_with_an_example(run, verb):
    text = run("longhaul", *verb.split(), "--help").stdout
    example = text.split("Example", 1)[1]
    assert f"longhaul {verb.split()[0] if verb else 'train'}" in example


def test_no_verb_is_without_a_test_of_its_help(run):
    text = run("longhaul", "--help").stdout.split("Subcommands:")[1].split("Example")[0]
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ")] == \
        [verb for verb in VERBS if " " not in verb]


# --- configuration

def test_an_unknown_key_and_its_nearest_name(run, root):
    text = TRAINING.replace("micro_size = 8", "micro_sise = 8")
    (root / "run.toml").write_text(text)
    line = text.splitlines().index("micro_sise = 8") + 1
    words = (f"run.toml:{line}:1: ", "batch.micro_sise", "micro_size")
    refused_without_a_trace(run, root, ["train", "run.toml"], *words)
    refused_without_a_trace(run, root, ["config", "run.toml"], *words)


def test_an_unknown_key_in_set(run, root):
    refused_without_a_trace(run, root, ["train", "run.toml", "--set", "optimiser.lr=1"],
                            "optimiser", "optimizer")


@pytest.mark.parametrize("key,value", [("precision.compute", '"fp8"')])
def test_a_key_that_is_not_built_yet(run, root, key, value):
    refused_without_a_trace(run, root, ["train", "run.toml", "--set", f"{key}={value}"],
                            f"{key} = {value} is not available yet", "available: ")


@pytest.mark.parametrize("ranks,global_size,micro_size", [(1, 16, 3), (1, 4, 8), (3, 16, 1)])
def test_a_batch_that_does_not_divide(run, root, ranks, global_size, micro_size):
    training_refused(
        run, root, [f"batch.global_size={global_size}", f"batch.micro_size={micro_size}"],
        "batch.global_size", str(global_size), "batch.micro_size", str(micro_size),
        *([str(ranks)] if ranks > 1 else []), ranks=ranks)


def test_sequences_longer_than_the_models_positions(run, root):
    training_refused(run, root, ["data.seq_len=256"], "data.seq_len", "256",
                     "max_position_embeddings", "128")
    refused_without_a_trace(run, root, ["eval", "models/small", "--data", "data/mine",
                                        "--seq-len", "256"],
                            "256", "128", "max_position_embeddings")
    generate = ["generate", "models/small", "--prompt", "x", "--max-new-tokens", "200"]
    refused_without_a_trace(run, root, generate, "128", "max_position_embeddings")


# --- data

def test_a_token_past_the_vocabulary_of_a_store(run, root):
    make_model(root / "models/narrow", vocab_size=300)
    for path in (root / "models/narrow").glob("*token*"):
        path.unlink()  # so that only the ids can tell
    training_refused(run, root,
                     ['init.weights="models/narrow"', 'model.config="models/narrow"'],
                     "data/mine", "holds token id 599", "300", "made with the model's tokenizer")
    refused_without_a_trace(run, root, ["eval", "models/narrow", "--data", "data/mine",
                                        "--seq-len", "64"], "holds token id 599", "300")


def test_a_token_past_the_vocabulary_at_the_end_of_a_saved_dataset(run, root):
    rows = [[i % 600 for i in range(64)] for _ in range(2000)]
    rows[-1][-1] = 600
    Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * 64] * len(rows),
                       "labels": rows}).save_to_disk(root / "rows")
    training_refused(run, root, ['data.train=[{path="rows"}]', "data.validation=[]"], "rows",
                     "row 1999", "input_ids holds 600", "from 0 to 599")


def test_a_store_made_with_another_tokenizer(run, root):
    make_tokenizer(root / "other", [text.upper() for text in documents()])
    run("longhaul", "data", "build", root / "corpus/*.txt", "--tokenizer", root / "other",
        "--out", root / "data/other")
    words = ("data/other", "made with another tokenizer", "the model's", "build the store again")
    training_refused(run, root, ['data.train=[{path="data/other"}]'], *words)
    training_refused(run, root, ['data.validation=[{name="x", path="data/other"}]'], *words)
    refused_without_a_trace(run, root, ["eval", "models/small", "--data", "data/other",
                                        "--seq-len", "64"], *words)


BUILD = ["data", "build", "bad/*", "--tokenizer", "models/small", "--out", "data/bad",
         "--holdout", "50%"]


@pytest.mark.parametrize("name,data,words", [
    ("a.txt", b"fine\xff", ["bad/a.txt", "invalid UTF-8", "byte 4 (0xff) of the file"]),
    ("a.jsonl", b'{"text":"fine"}\n{"text":"\xc3\x28"}\n',
     ["bad/a.jsonl:2", "invalid UTF-8", "byte 9 (0xc3) of the line", "--bad-records drop"]),
    ("a.jsonl", b'{"text":"fine"}\n{"text":\n', ["bad/a.jsonl:2", "invalid JSON"]),
    ("a.jsonl", b'{"body":"fine"}\n', ["bad/a.jsonl:1", "field missing", "'text'", "'body'"]),
    ("a.json", b'[{"text":"fine"},{"text":"fine"}]',
     ["bad/a.json is one JSON array; one object a line is read: `jq -c '.[]' bad/a.json > bad/a.jsonl`"]),
    ("a.jsonl", b'{"messages":[{"role":"user","content":"x"}]}\n', ["records are chats ('messages')"]),
    ("a.txt", b"", ["1 file holds no document with text"]),
    ("a.jsonl", b"\n\n", ["1 file holds no document with text"]),
    ("a.jsonl", b'{"text":""}\n', ["1 file holds no document with text"]),
    ("a.jsonl.gz", gzip.compress(b'{"text":"' + os.urandom(400).hex().encode() + b'"}\n')[:-40],
     ["bad/a.jsonl.gz", "the gzip data ends early", "truncated", "download the file again"]),
    ("a.jsonl.gz", b'{"text":"plain"}\n', ["bad/a.jsonl.gz", "not valid gzip data"]),
], ids=["text", "json_line", "json", "field", "array", "chat", "empty_file", "blank_lines", "empty_text",
        "truncated_gzip", "no_gzip"])
def test_a_bad_corpus_makes_no_store(run, root, name, data, words):
    (root / "bad").mkdir()
    (root / "bad" / name).write_bytes(data)
    refused_without_a_trace(run, root, BUILD, *words)


def test_a_bad_file_after_good_ones_makes_no_store_and_keeps_the_old_one(run, root):
    shutil.copytree(root / "corpus", root / "bad")
    shutil.copytree(root / "data/mine", root / "data/bad")
    packed = root / "bad/part-1.jsonl.gz"
    os.truncate(packed, packed.stat().st_size - 20)
    refused_without_a_trace(run, root, [*BUILD, "--force"], "bad/part-1.jsonl.gz", "truncated")


def test_bad_records_are_dropped_only_on_request_and_counted(run, root):
    (root / "bad").mkdir()
    (root / "bad/a.jsonl").write_bytes(b'{"text":"one"}\n{"text":"\xff"}\n{"text":\n{"text":"two"}\n')
    result = run("longhaul", *BUILD[:-2], "--bad-records", "drop", cwd=root)
    assert "left out        1 record: invalid UTF-8" in result.stdout
    assert "left out        1 record: invalid JSON" in result.stdout
    assert "bad/a.jsonl:2 (byte 15)  invalid UTF-8" in result.stdout
    info = json.loads((root / "data/bad/store.json").read_text())
    assert info["documents"] == 2 and sum(info["dropped"].values()) == 2


def test_a_file_of_which_nothing_is_used_is_no_bad_record(run, root):
    (root / "bad").mkdir()
    (root / "bad/good.jsonl").write_text('{"text":"fine"}\n' * 50)
    for name, text, words in [("a.json", json.dumps([{"text": "x"}] * 1000), "bad/a.json is one JSON array"),
                              ("a.jsonl", '{"body":"x"}\n' * 3, "bad/a.jsonl: 0 of 3 records used")]:
        (root / "bad" / name).write_text(text)
        refused_without_a_trace(run, root, [*BUILD[:-2], "--bad-records", "drop"], words)
        (root / "bad" / name).unlink()


def test_training_calls_an_array_and_chats_by_their_names(run, root):
    (root / "a.json").write_text('[{"input_ids": [1, 2]}]')
    (root / "chats.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    training_refused(run, root, ['data.train=[{path="a.json"}]'], "a.json is one JSON array", "jq -c '.[]'")
    training_refused(run, root, ['data.train=[{path="chats.jsonl"}]'], "records are chats ('messages')")


@pytest.mark.parametrize("file", ["store.json", "tokens_00000.bin", "documents_00000.bin"])
def test_a_truncated_store(run, root, file):
    path = root / "data/mine" / file
    os.truncate(path, path.stat().st_size // 2)
    training_refused(run, root, [], f"data/mine/{file}")


# --- runs

def test_a_refused_resume_leaves_the_run_as_it_was(run, root):
    sets = ["--set", "run.steps=4"]
    run("longhaul", "train", "run.toml", *sets, cwd=root)
    before = contents(root / "runs/mine")
    for change, words in ((["--set", "run.seed=99"], ["run.seed", "1234", "99"]),
                          (["--set", 'data.train=[{path="nowhere"}]'], ["nowhere"])):
        refused(run("longhaul", "train", "run.toml", *sets, *change, check=False, cwd=root),
                *words)
        after = contents(root / "runs/mine")
        for name in before:  # what a start notes down may grow; nothing else may change
            if name not in ("log.txt", "run.lock", "events.jsonl"):
                assert after[name] == before[name], name


def test_the_error_that_ends_a_run_stands_in_its_log_and_events(run, root):
    shards(root / "models/small")[0].unlink()
    training_refused(run, root, [], "1 of 4 shards are missing")
    assert "error: [weights] models/small: 1 of 4 shards are missing" in \
        (root / "runs/mine/log.txt").read_text()
    last = json.loads((root / "runs/mine/events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "refused_start" and "1 of 4 shards are missing" in last["message"]


def ranks_of(launcher):
    """The process ids of the ranks that this mpirun has started."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == launcher.pid:
                found.append(int(entry.name))
    return found


def alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


TWO_RANKS = ["--set", "run.steps=80", "--set", "checkpoint.every=10", "--set",
             "checkpoint.keep=0"]


@pytest.fixture(scope="module")
def undisturbed(run, tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed")
    run("longhaul", "train", write_config(root, "run"), *TWO_RANKS, ranks=2)
    return curve(root / "run")


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_rank_that_dies_ends_the_others_and_the_run_goes_on(run, binary, tmp_path,
                                                              undisturbed, victim):
    path = write_config(tmp_path, "run")
    command = ["mpirun", "--allow-run-as-root", "-n", "2", "--oversubscribe", "--bind-to",
               "none", binary("longhaul"), "train", str(path), "--set", PACE, *TWO_RANKS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
    try:
        wait_for(lambda: (tmp_path / "run/checkpoints/step_00000020/manifest.json").exists())
        pids = sorted(ranks_of(process))
        assert len(pids) == 2
        os.kill(pids[victim], signal.SIGKILL)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "signal 9" in error
    wait_for(lambda: not any(alive(pid) for pid in pids), 30)
    assert max(steps_of(tmp_path / "run")) < 80
    run("longhaul", "train", path, *TWO_RANKS, ranks=2)
    assert len(undisturbed) == 80 and curve(tmp_path / "run") == undisturbed
