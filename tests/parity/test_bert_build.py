"""`data build --bert`: the source system's loader could read the shards, and every example is a
piece of the text. Shares and lengths are those of a second implementation, and an interrupted build
gives the same bytes."""

import hashlib
import json
import pathlib
import random
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest
from bert_reference import make as reference_examples
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
FORMS = {"input_ids": ("<i4", "S"), "input_mask": ("i1", "S"), "segment_ids": ("i1", "S"),
         "masked_lm_positions": ("<i4", "P"), "masked_lm_ids": ("<i4", "P"),
         "next_sentence_labels": ("i1", "")}
WORDS = [f"{a}{b}" for a in "bcdfghjklmnp" for b in ["a", "e", "i", "o", "u", "an", "er"]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A tokenizer and documents of sentences; each sentence names itself by its words."""
    folder = tmp_path_factory.mktemp("corpus")
    vocabulary = {token: i for i, token in enumerate(SPECIAL + WORDS + ["##s", "##ing", "##ed"])}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    rng = random.Random(11)
    documents = []
    for _ in range(300):
        documents.append([
            " ".join(rng.choice(WORDS) + rng.choice(["", "", "", "s", "ing", "ed"])
                     for _ in range(min(200, int(rng.expovariate(1 / 14)) + 1)))
            for _ in range(rng.randint(1, 25))])
    with open(folder / "a.jsonl", "w") as file:
        for document in documents[:200]:
            file.write(json.dumps({"text": "\n".join(document)}) + "\n")
    (folder / "b.txt").write_text("\n\n".join("\n".join(d) for d in documents[200:]))
    return folder, tokenizer, documents


def build(run, folder, out, *options, check=True):
    return run("longhaul_bert_tool", "data", "build", folder / "a.jsonl", "--bert",
               folder / "b.txt", "--tokenizer", folder / "tokenizer.json", "--out", out,
               *options, check=check)


def load(out):
    """All shards, in order, as arrays."""
    parts = {name: [] for name in FORMS}
    for path in sorted(out.glob("*_training_*.hdf5")):
        with h5py.File(path) as file:
            assert sorted(file) == sorted(FORMS)
            for name in FORMS:
                parts[name].append(file[name][:])
    return {name: np.concatenate(values) for name, values in parts.items()}


def rows_of(arrays):
    """The rows as they were before masking: first text, second text, and whether the second is a
    random one."""
    for row in range(len(arrays["input_ids"])):
        ids = arrays["input_ids"][row].copy()
        positions = arrays["masked_lm_positions"][row]
        count = int(np.count_nonzero(positions))
        assert np.all(positions[count:] == 0) and np.all(np.diff(positions[:count]) > 0)
        ids[positions[:count]] = arrays["masked_lm_ids"][row, :count]
        length = int(arrays["input_mask"][row].sum())
        ends = np.flatnonzero(ids == SEP)
        assert ids[0] == CLS and len(ends) == 2 and ends[1] == length - 1
        assert np.all(arrays["input_mask"][row, :length] == 1) and np.all(ids[length:] == PAD)
        segments = np.zeros(len(ids), np.int8)
        segments[ends[0] + 1:length] = 1
        assert np.array_equal(segments, arrays["segment_ids"][row])
        yield (ids[1:ends[0]].tolist(), ids[ends[0] + 1:ends[1]].tolist(),
               int(arrays["next_sentence_labels"][row]))


@pytest.mark.parametrize("length, predictions", [(128, 20), (512, 80)])
def test_shards_have_the_published_layout(run, corpus, tmp_path, length, predictions):
    folder, _, _ = corpus
    out = tmp_path / "out"
    build(run, folder, out, "--seq-len", length, "--shards", 3)
    paths = sorted(out.glob("*_training_*.hdf5"))
    assert len(paths) == 3
    for path in paths:
        with h5py.File(path) as file:
            rows = len(file["input_ids"])
            for name, (kind, width) in FORMS.items():
                shape = {"S": (rows, length), "P": (rows, predictions), "": (rows,)}[width]
                assert file[name].shape == shape and file[name].dtype == np.dtype(kind)
                assert file[name].compression == "gzip"


def test_every_example_decodes_to_stretches_of_its_documents(run, corpus, tmp_path):
    folder, tokenizer, documents = corpus
    out = tmp_path / "out"
    build(run, folder, out, "--seq-len", 64, "--max-predictions", 10, "--duplicates", 2)
    texts = []
    for document in documents:
        ids = [i for sentence in document
               for i in tokenizer.encode(sentence, add_special_tokens=False).ids]
        texts.append(" ".join(map(str, ids)) + " ")

    def holders(ids):
        wanted = " ".join(map(str, ids)) + " "
        return {n for n, text in enumerate(texts)
                if text.startswith(wanted) or f" {wanted}" in text}

    covered = set()
    for first, second, random_next in rows_of(load(out)):
        assert first and second
        of_first, of_second = holders(first), holders(second)
        assert of_first and of_second
        covered |= of_first
        if random_next:
            assert len(of_first | of_second) > 1
        else:
            assert of_first & of_second
    assert covered == set(range(len(documents))), "a document gave no example"


def shares(lengths, firsts, random_next, predictions, kinds):
    lengths, firsts = np.array(lengths), np.array(firsts)
    total = sum(kinds.values())
    return {"examples": len(lengths), "length": lengths.mean(), "full": np.mean(lengths == 128),
            "quarter": np.mean(lengths < 32), "first": np.mean(firsts / lengths),
            "random": np.mean(random_next), "predictions": np.mean(predictions),
            **{kind: kinds[kind] / total for kind in sorted(kinds)}}


def test_distributions_are_those_of_the_published_recipe(run, corpus, tmp_path):
    folder, tokenizer, documents = corpus
    out = tmp_path / "out"
    build(run, folder, out, "--seq-len", 128, "--duplicates", 20)
    arrays = load(out)
    rows = list(rows_of(arrays))
    used = arrays["masked_lm_positions"] > 0
    at = np.take_along_axis(arrays["input_ids"], arrays["masked_lm_positions"], 1)
    masked = int(np.sum((at == MASK) & used))
    kept = int(np.sum((at == arrays["masked_lm_ids"]) & used))
    kinds = {"masked": masked, "kept": kept, "replaced": int(used.sum()) - masked - kept}
    ours = shares([len(a) + len(b) + 3 for a, b, _ in rows], [len(a) for a, _, _ in rows],
                  [r for _, _, r in rows], used.sum(axis=1), kinds)

    encoded = [[tokenizer.encode(s, add_special_tokens=False).ids for s in document]
               for document in documents]
    # longhaul cuts a sentence that is longer than a row, so that nothing of it is lost. The
    # reference gets the pieces.
    encoded = [[s[i:i + 125] for s in document for i in range(0, len(s), 125)]
               for document in encoded]
    wanted = reference_examples(encoded, 128, 20, passes=20)
    kinds = {kind: sum(k == kind for e in wanted for _, k in e[3])
             for kind in ("masked", "kept", "replaced")}
    theirs = shares([len(e[0]) for e in wanted], [e[1] for e in wanted],
                    [e[2] for e in wanted], [len(e[3]) for e in wanted], kinds)
    # The bounds are at least four standard deviations for the ~12,000 examples of either side.
    bounds = {"examples": 0.02 * theirs["examples"], "length": 2.0, "full": 0.03,
              "quarter": 0.015, "first": 0.02, "random": 0.03, "predictions": 0.3,
              "masked": 0.006, "kept": 0.005, "replaced": 0.005}
    for name, bound in bounds.items():
        assert abs(ours[name] - theirs[name]) < bound, (name, ours[name], theirs[name])
    assert abs(ours["masked"] - 0.8) < 0.006 and abs(ours["kept"] - 0.1) < 0.006
    assert ours["random"] > 0.5, "one-sentence documents have no next sentence of their own"


def test_whole_words_are_masked_whole(run, corpus, tmp_path):
    folder, tokenizer, _ = corpus
    inside = np.array([(tokenizer.id_to_token(i) or "").startswith("##")
                       for i in range(tokenizer.get_vocab_size())])
    out = tmp_path / "out"
    build(run, folder, out, "--seq-len", 128, "--whole-words", "--shards", 1)
    arrays = load(out)
    chosen = np.zeros(arrays["input_ids"].shape, bool)
    np.put_along_axis(chosen, arrays["masked_lm_positions"], True, 1)
    whole = np.array([[0] * 1])
    ids = arrays["input_ids"].copy()
    for row, positions in enumerate(arrays["masked_lm_positions"]):
        count = int(np.count_nonzero(positions))
        ids[row, positions[:count]] = arrays["masked_lm_ids"][row, :count]
    chosen[:, 0] = False
    starts = ~inside[ids[:, :-1]] & (ids[:, :-1] > MASK)
    pairs = starts & inside[ids[:, 1:]]
    whole = chosen[:, :-1][pairs] == chosen[:, 1:][pairs]
    assert len(whole) > 10_000 and whole.all()


def test_training_reads_what_was_built(run, corpus, tmp_path):
    folder, tokenizer, _ = corpus
    out = tmp_path / "out"
    build(run, folder, out, "--seq-len", 128, "--shards", 4)
    first = sorted(out.glob("*_training_*.hdf5"))[0]
    with h5py.File(first) as file:
        ids = file["input_ids"][:]
    options = json.dumps({"vocab_size": tokenizer.get_vocab_size(), "seq_len": 128,
                          "batch_size": len(ids)})
    batch = json.loads(run("longhaul_bert_tool", "batches", options, first).stdout)
    assert batch["tokens"] == ids.ravel().tolist()


def test_any_flipped_bit_in_a_shard_of_ours_is_refused(run, corpus, tmp_path):
    folder, tokenizer, _ = corpus
    out = tmp_path / "out"
    build(run, folder, out, "--seq-len", 128, "--shards", 4)
    shard = sorted(out.glob("*_training_*.hdf5"))[1]
    whole = shard.read_bytes()
    options = json.dumps({"vocab_size": tokenizer.get_vocab_size(), "seq_len": 128})
    rng = random.Random(1)
    for _ in range(40):
        flipped = bytearray(whole)
        flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        shard.write_bytes(flipped)
        result = run("longhaul_bert_tool", "batches", options, shard, check=False)
        assert result.returncode == 78 and f"{shard}: its hash is" in result.stderr


def digest(out):
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(out.rglob("*")) if path.is_file()}


def killed_builds(binary, folder, out, kills, rng, seconds):
    command = [binary("longhaul_bert_tool"), "data", "build", folder / "a.jsonl",
               folder / "b.txt", "--bert", "--tokenizer", folder / "tokenizer.json", "--out", out,
               "--duplicates", "30", "--shards", "12", "--threads", "2"]
    stopped = 0
    for _ in range(kills):
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * seconds)
        process.send_signal(signal.SIGKILL)
        stopped += process.wait() == -signal.SIGKILL
        if out.exists():  # it was faster
            break
    subprocess.run(list(map(str, command)) + ["--force"], check=True, capture_output=True)
    return stopped


@pytest.mark.parametrize("kills", [4])
def test_a_killed_build_ends_with_the_same_bytes(binary, corpus, tmp_path, kills):
    folder, _, _ = corpus
    killed_builds(binary, folder, tmp_path / "whole", 0, None, 0)
    rng = random.Random(3)
    begin = time.monotonic()
    killed_builds(binary, folder, tmp_path / "again", 0, None, 0)
    seconds = time.monotonic() - begin
    out = tmp_path / "out"
    assert killed_builds(binary, folder, out, kills, rng, 0.5 * seconds) > 0
    assert digest(out) == digest(tmp_path / "whole") == digest(tmp_path / "again")
    assert sorted(path.name for path in pathlib.Path(tmp_path).iterdir()) == [
        "again", "out", "whole"]


def test_bad_input_is_refused_by_name(run, corpus, tmp_path):
    folder, _, _ = corpus
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "ba be"}\n{"text": \n')
    options = ["--tokenizer", folder / "tokenizer.json", "--out", tmp_path / "out"]
    result = run("longhaul_bert_tool", "data", "build", bad, "--bert", *options, check=False)
    assert result.returncode == 78 and "bad.jsonl:2" in result.stderr
    one = tmp_path / "one.txt"
    one.write_text("ba be\nbi bo\n")
    result = run("longhaul_bert_tool", "data", "build", one, "--bert", "--restart", *options,
                 check=False)
    assert result.returncode == 78 and "one document" in result.stderr
