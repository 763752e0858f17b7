"""A small run, and functions that read the files it leaves."""

import json

import xxhash

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 300,
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "initializer_range": 0.05, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}

TEXT = """
[run]
dir = "{dir}"
steps = 8
device = "cpu"
threads = 1
[model]
config = "{model}"
[data]
seq_len = 32
train = [{{ synthetic = 100 }}]
[batch]
global_size = 8
micro_size = 2
[optimizer]
lr = 3e-3
[schedule]
kind = "cosine"
warmup_steps = 2
[checkpoint]
every = 4
keep = 0
"""

# A step of this model takes as little as 2 ms. With this pace a run still has steps to go when a
# test does something to it.
PACE = 'debug.delays=[{phase = "update", seconds = 0.03}]'


def write_config(tmp_path, name="run"):
    model = tmp_path / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(MODEL))
    path = tmp_path / f"{name}.toml"
    path.write_text(TEXT.format(dir=tmp_path / name, model=model))
    return path


def steps_of(run_dir):
    """The last record of each step: step -> record."""
    records = {}
    for line in (run_dir / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "grad_norm" in record:
            records[record["step"]] = record
    return records


def curve(run_dir):
    return [(r["loss"], r["grad_norm"], r["lr"]) for _, r in sorted(steps_of(run_dir).items())]


def tensors(checkpoint_dir):
    """Every tensor of a checkpoint as bytes, by its name in the rank files."""
    found = {}
    for path in sorted(checkpoint_dir.glob("a*_rank_*.safetensors")):
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                rank = path.name.split("_", 1)[1]
                found[rank, name] = data[8 + length + begin:8 + length + end]
    assert found
    return found


def state(checkpoint_dir):
    """The parts of state.json that have to be equal, whichever start wrote them."""
    text = next(checkpoint_dir.glob("*state.json")).read_text()
    saved = json.loads(text)
    return {key: saved[key] for key in ("step", "updates", "tokens", "cursor", "sources",
                                     "batch_hash", "schedule")}


def final(run_dir):
    return run_dir / "checkpoints" / "step_00000008"


def edit_state(step, change):
    """Changes the state of a checkpoint as if a program had written it with other values."""
    manifest = json.loads((step / "manifest.json").read_text())
    state = step / manifest["state"]["name"]
    content = json.loads(state.read_text())
    change(content)
    state.write_text(json.dumps(content))

    def hashed(content):
        raw = content if isinstance(content, bytes) else content.encode()
        return xxhash.xxh3_128_hexdigest(raw)

    manifest["state"].update(size=state.stat().st_size, hash=hashed(hashed(state.read_bytes())))
    del manifest["self"]
    manifest["self"] = hashed(json.dumps(manifest, sort_keys=True, separators=(",", ":")))
    (step / "manifest.json").write_text(json.dumps(manifest))
