"""Files that changed, or that contradict each other, are reported by every verb that reads them."""

import pytest
from refusals import refused, refused_without_a_trace, shards, training_refused
from safetensors.torch import load_file, save_file
from small_model import make_model
from transformers import LlamaForCausalLM


@pytest.mark.parametrize("ranks", [1, 2])
def test_changed_bytes_of_a_store_end_the_run_that_reads_them(run, root, ranks):
    tokens = root / "data/mine/tokens_00000.bin"
    data = bytearray(tokens.read_bytes())
    for at in (len(data) // 2, len(data) // 2 + 2, len(data) - 2):
        data[at] ^= 1  # of 600 ids the smaller byte
    tokens.write_bytes(data)
    words = [f"data/mine/tokens_00000.bin: damaged: block 0 (bytes 0 to {len(data)}) has hash",
             "hashes_00000.json says", "copy the store again or build it again"]
    training_refused(run, root, ["data.validation=[]"], *words, ranks=ranks)
    if ranks > 1:
        return
    refused(run("longhaul", "verify", root / "data/mine", check=False), "tokens_00000.bin: damaged")
    evaluate = ["longhaul", "eval", "models/small", "--data", "data/mine", "--seq-len", "64"]
    refused(run(*evaluate, check=False, cwd=root), *words)
    run("longhaul", "train", "run.toml", "--set", "data.verify=false", "--set", "run.stop_after=1",
        cwd=root)


def test_a_tied_model_whose_files_hold_another_head(run, root):
    """transformers does not tie such a model, so each verb that computes with it has to say so."""
    make_model(root / "models/tied", tie_word_embeddings=True)
    tensors = {}
    for path in shards(root / "models/tied"):
        tensors.update(load_file(path))
        path.unlink()
    (root / "models/tied/model.safetensors.index.json").unlink()
    head = tensors["model.embed_tokens.weight"].clone()
    for value, differs in ((None, False), (0.5, True)):
        if differs:
            head[7, 3] = value
        save_file({**tensors, "lm_head.weight": head}, root / "models/tied/model.safetensors",
                  {"format": "pt"})
        model = LlamaForCausalLM.from_pretrained(root / "models/tied")
        tied = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
        assert tied is not differs  # what transformers does
        words = ["tie_word_embeddings is true", "lm_head.weight[7, 3] is 0.5"]
        sets = ['init.weights="models/tied"', 'model.config="models/tied"', "run.stop_after=1"]
        told = run("longhaul", "inspect", "models/tied", cwd=root).stdout
        assert all((word in told) == differs for word in words), told
        told = run("longhaul", "export", "models/tied", "--out", f"out{differs}", cwd=root).stdout
        assert all((word in told) == differs for word in words), told
        if not differs:
            run("longhaul", "train", "run.toml", *[w for s in [*sets, "run.dir=ok"]
                                                   for w in ("--set", s)], cwd=root)
            continue
        training_refused(run, root, sets, *words, ranks=2)
        for verb in (["eval", "models/tied", "--data", "data/mine", "--seq-len", "64"],
                     ["generate", "models/tied", "--prompt", "x"]):
            refused_without_a_trace(run, root, verb, *words)
