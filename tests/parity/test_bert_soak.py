"""Fifty kills of one build of BERT examples, and a thousand flipped bits in a shard."""

import random
import time

from test_bert_build import corpus, digest, killed_builds  # noqa: F401  (a fixture)
from test_bert_data import flipped_bits


def test_fifty_kills_leave_the_same_bytes(binary, corpus, tmp_path):  # noqa: F811
    folder, _, _ = corpus
    begin = time.monotonic()
    killed_builds(binary, folder, tmp_path / "whole", 0, None, 0)
    seconds = time.monotonic() - begin
    whole = digest(tmp_path / "whole")
    rng = random.Random(8)
    killed = 0
    for number in range(50):
        if killed >= 50:
            break
        out = tmp_path / f"out{number}"
        killed += killed_builds(binary, folder, out, 50 - killed, rng, 0.6 * seconds)
        assert digest(out) == whole, number
    assert killed >= 50


def test_a_thousand_flipped_bits(run, tmp_path):
    refused, passed = flipped_bits(run, tmp_path, 1000, seed=9)
    assert refused > 350 and passed < 10
