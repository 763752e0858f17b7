"""Runs a case with the programs of a build and writes down its numbers."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time

from cases import FAMILIES, MODEL, RUN, documents

TIME_LIMIT = 300  # seconds of one start; the slowest takes a hundredth of it on a free machine
NUMBERS = ("loss", "grad_norm", "lr", "applied")


class Failed(Exception):
    """A program did not end as it has to."""


def environment():
    """Nothing of a job or supervisor that this may run under; one thread; ranks that wait
    leave the core to those that work."""
    found = {k: v for k, v in os.environ.items() if not k.startswith("LONGHAUL_")}
    found.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive",
                 OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                 OMPI_MCA_mpi_yield_when_idle="1")
    return found


def last_words(text, lines=1):
    told = [line for line in text.splitlines() if line.strip()]
    ours = [line for line in told if line.startswith("longhaul: error")]
    return " | ".join((ours or told)[-lines:]) or "without a word"


def execute(words, where, expected=0):
    """Runs a command in a directory; what it started ends with it."""
    process = subprocess.Popen([str(w) for w in words], cwd=where, env=environment(), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(timeout=TIME_LIMIT)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"no end after {TIME_LIMIT} s") from None
        raise
    with (where / "output.txt").open("a") as file:
        file.write(f"$ {' '.join(map(str, words))}\n{out}{err}ended with {process.returncode}\n")
    if process.returncode != expected:
        raise Failed(f"ended with {process.returncode}, not {expected}: "
                     f"{last_words(err + out)}")
    return out


def start_of(stage, program, where):
    train = [program, "train", "run.toml"]
    for setting in stage.sets:
        train += ["--set", setting]
    if stage.ranks == 1:
        return train
    words = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    if stage.nodes == 0:
        return [*words, "-n", stage.ranks, *train]
    for node in range(stage.nodes):
        words += [":"] * (node > 0)
        words += ["-n", stage.ranks // stage.nodes, "env", f"LONGHAUL_NODE_NAME=n{node}",
                  f"LONGHAUL_MEMORY_DIR={where.resolve() / f'memory_{node}'}", *train]
    return words


def make_data(program, root):
    """The token stores that some cases read, beside their directories."""
    place = root / "data"
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    texts = list(documents())
    for name, part in (("store", texts[:-60]), ("held", texts[-60:])):
        lines = place / f"{name}.jsonl"
        lines.write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in part))
        execute([program, "data", "build", lines.name, "--field", "ids", "--vocab-size",
                 MODEL["vocab_size"], "--threads", 1, "--out", name], place)
    make_examples(program, place)


def make_examples(program, place):
    """HDF5 shards of BERT's examples, of the same documents by a tokenizer of whole words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{n}" for n in range(FAMILIES["bert"]["vocab_size"] - len(special))]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None, "decoder": None,
        "added_tokens": [{"id": n, "content": word, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for n, word in enumerate(special)],
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100,
                  "vocab": {word: n for n, word in enumerate(words)}}}
    (place / "words.json").write_text(json.dumps(tokenizer))
    sentences = []
    for ids in documents():
        for begin in range(0, len(ids), 8):
            sentences.append(" ".join(f"w{n}" for n in ids[begin:begin + 8]))
        sentences.append("")
    (place / "bert.txt").write_text("\n".join(sentences) + "\n")
    execute([program, "data", "build", "--bert", "bert.txt", "--tokenizer", "words.json",
             "--seq-len", 32, "--max-predictions", 5, "--shards", 2, "--threads", 1, "--out",
             "bert"], place)


def points_of(run_dir):
    """Each record of metrics.jsonl, its numbers as they are written."""
    path = run_dir / "metrics.jsonl"
    points = []
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
        kind = f"validation {record['validation']}" if "validation" in record else "training"
        point = {"step": record["step"], "attempt": record["attempt"], "of": kind}
        for name in NUMBERS:
            if name in record:
                value = record[name]
                point[name] = value if isinstance(value, str) else json.dumps(value)
        points.append(point)
    return points


def tensors_of(directory):
    """SHA-256 of each tensor of a Hugging Face directory with its dtype and shape, by name."""
    found = {}
    for path in sorted(directory.glob("*.safetensors")):
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                kind = f"{entry['dtype']} {entry['shape']} ".encode()
                found[name] = hashlib.sha256(kind + data[begin:end]).hexdigest()
    return found


def log_line(run_dir, begins):
    """What follows the given words in the last line of the log that begins with them."""
    path = run_dir / "log.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [line[len(begins):] for line in lines if line.startswith(begins)]
    return found[-1] if found else None


def flops_of(run_dir, ranks):
    """FLOPs of a step of the last start, in full and causal: what rates and seconds make."""
    path = run_dir / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rates = [record for record in map(json.loads, lines) if record.get("mfu")]
    if not rates:
        return {}
    last = rates[-1]
    full = last["tflops_per_device"] * last["step_time_s"] * ranks * 1e12
    return {"flops per step": f"{full:.0f}",
            "causal flops per step": f"{full * last['mfu_causal'] / last['mfu']:.0f}"}


def figures_of(run_dir, ranks):
    """What a run says of itself beside its numbers; what is not said is left out."""
    model = log_line(run_dir, "model ") or ""
    parameters, bracket, memory = model.partition("), ")
    found = {"parameters": parameters + bracket[:1], "memory": memory, **flops_of(run_dir, ranks)}
    states = sorted(run_dir.glob("checkpoints/step_????????/a*_state.json"))
    if states:
        state = json.loads(states[-1].read_text())
        found["batches"] = state.get("batch_hash")
        for name, value in state.get("numerics", {}).items():
            found[f"numerics {name}"] = value if isinstance(value, str) else json.dumps(value)
    return {name: value for name, value in found.items() if value}


def run_case(case, programs, root, begun_by=None):
    """The record of a case; where something did not run, `failed` says what. `begun_by`: the
    programs of the first start of a case that is handed over; without it these begin it too."""
    program, where = programs / "longhaul", root / case.name
    record = {"ranks": case.ranks, "definition": case.definition()}
    begun = time.monotonic()
    try:
        if not (root / "data" / "held" / "store.json").exists():
            make_data(program, root)
        if where.exists():
            shutil.rmtree(where)
        (where / "model").mkdir(parents=True)
        (where / "model" / "config.json").write_text(json.dumps(case.config()))
        (where / "run.toml").write_text(RUN)
        for number, stage in enumerate(case.stages, 1):
            begins = case.handed_over and number == 1 and begun_by
            try:
                execute(start_of(stage, (begun_by if begins else programs) / "longhaul", where),
                        where, stage.exit)
            except Failed as error:
                raise Failed(f"start {number} of {len(case.stages)}: {error}") from None
        execute([program, "export", "run", "--dtype", "fp32", "--out", "hf"], where)
        record["points"] = points_of(where / "run")
        record["tensors"] = tensors_of(where / "hf")
        record["figures"] = figures_of(where / "run", case.stages[-1].ranks)
        if not record["points"] or not record["tensors"]:
            raise Failed("no metrics.jsonl or no weights were left")
    except (Failed, OSError, ValueError, KeyError) as error:
        kind = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
        record["failed"] = f"{kind}{error}"
    record["seconds"] = round(time.monotonic() - begun, 1)
    return record


def version_of(programs, root):
    """The commit that the program was built from, as it says itself."""
    out = execute([programs / "longhaul", "--version"], root)
    return next((line.split()[-1] for line in out.splitlines() if line.split()[:1] == ["commit"]),
                "unknown")
