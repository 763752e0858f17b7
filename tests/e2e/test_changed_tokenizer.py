"""A program whose tokenizer means something else than the one that built a store, although its
files are the same, is refused."""

import json

from refusals import refused_without_a_trace, training_refused


def test_a_tokenizer_of_the_same_files_that_makes_other_ids(run, root):
    # The self-test is changed as if another program had tokenized: the hash of the files is the
    # same.
    test = root / "data/mine/self_test.json"
    cases = json.loads(test.read_text())
    place = next(i for i, case in enumerate(cases) if len(case["ids"]) > 3)
    cases[place]["ids"][2] ^= 1
    text = json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n"
    assert len(text.encode()) == test.stat().st_size
    test.write_text(text)
    words = ("data/mine", "makes other ids", "id 2 is")
    training_refused(run, root, ["data.validation=[]"], *words)
    refused_without_a_trace(run, root, ["eval", "models/small", "--data", "data/mine",
                                        "--seq-len", "64"], *words)
