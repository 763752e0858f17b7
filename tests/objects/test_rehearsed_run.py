"""A rehearsed run finds at once a mirror that refuses, and a shard that only its last batch needs."""

import json

import pytest
from fault_proxy import FaultProxy, Rule
from mirrored_run import sets
from programs import later
from runs import steps_of, write_config
from servers import environment

WRONG = 78


def test_a_mirror_that_refuses_ends_the_rehearsal_and_one_that_takes_a_file_keeps_nothing(mirrored, store):
    refuses = Rule("AccessDenied", methods=("PUT", "POST"), keys="/rehearsal_")
    with FaultProxy(store.endpoint, [refuses]) as proxy:
        mine = mirrored(endpoint=proxy.endpoint)

        def rehearse():
            return mine.run("longhaul", "train", mine.config, "--rehearse",
                            *sets(*mine.sets, "run.stop_after=2"), env=mine.env, check=False)

        result = rehearse()
        assert result.returncode == WRONG, result.stderr
        for words in ("[rehearsal] mirror (part 5 of 9", f"s3://corpus/{mine.name}/rehearsal_",
                      "Access Denied", "the credentials do not allow it"):
            assert words in result.stderr, (words, result.stderr)
        assert not steps_of(mine.dir) and not list((mine.dir / "checkpoints").glob("rehearsal*"))
        proxy.rules, before = [], proxy.count("PUT", keys="/rehearsal_")
        result = rehearse()
        assert result.returncode == 0, result.stderr
        assert "rehearsal: mirror: a file sent to s3://corpus/" in result.stdout, result.stdout
        assert proxy.count("PUT", keys="/rehearsal_") > before
        assert proxy.count("GET", keys="/rehearsal_") and proxy.count("DELETE", keys="/rehearsal_")
        assert mine.mirrored() == [2] and not [key for key in mine.keys() if "rehearsal" in key]


BUSY, REFUSED = "MIRROR FAILED in the rehearsal: ", "/rank_00000.json may stay, since it could not be removed: "


@pytest.mark.parametrize("fault, methods, said, parts", [
    ("SlowDown", ("PUT", "POST"), BUSY, "all parts but the mirror"),
    ("AccessDenied", ("DELETE",), REFUSED, "all 9 parts"),
    *later(("SlowDown", ("GET",), BUSY, "all parts but the mirror")),
], ids=["put", "delete", "get"])
def test_a_mirror_that_fails_for_now_or_keeps_a_file_is_a_warning(mirrored, store, fault, methods, said,
                                                                  parts):
    rule = Rule(fault, methods=methods, keys="/rehearsal_")
    with FaultProxy(store.endpoint, [rule]) as proxy:
        mine = mirrored(endpoint=proxy.endpoint, patience=3)
        result = mine.run("longhaul", "train", mine.config, "--rehearse",
                          *sets(*mine.sets, "run.stop_after=2"), env=mine.env, check=False)
    assert result.returncode == 0, result.stderr
    assert said in result.stdout + result.stderr, (result.stdout, result.stderr)
    assert f"rehearsal: {parts} went well in" in result.stdout, result.stdout
    assert steps_of(mine.dir) and mine.mirrored() == [2]
    left = [key for key in mine.keys() if "rehearsal" in key]
    assert len(left) == (1 if methods == ("DELETE",) else 0), left


def test_a_short_shard_of_the_last_batch_ends_the_rehearsal(run, store, tmp_path):
    lines = (f"the {n}th of many lines, of {n * n % 97}" for n in range(2000))
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    run("longhaul", "data", "train-tokenizer", tmp_path / "corpus.jsonl", "--out", tmp_path / "tokenizer",
        "--vocab-size", 300)
    run("longhaul", "data", "build", tmp_path / "corpus.jsonl", "--tokenizer", tmp_path / "tokenizer",
        "--out", tmp_path / "short", "--part-size", "8kB")
    shards = json.loads((tmp_path / "short/store.json").read_text())["shards"]
    assert len(shards) > 2
    last = tmp_path / "short" / shards[-1]["token_file"]["name"]
    whole = last.read_bytes()
    steps = (sum(shard["tokens"] for shard in shards) - 1) // (8 * 32)
    words = ["train", write_config(tmp_path), *sets(
        'data.train=[{ path = "s3://corpus/short" }]', "data.shuffle=false",
        f'data.cache="{tmp_path / "cache"}"', f"run.steps={steps}")]
    env = environment(tmp_path / "home", store.endpoint)
    # A shard of another size is refused before that. An interrupted copy may have the size.
    for content, said in ((whole[:-64], "[data] "),
                          (whole[:-64] + bytes(64), "[rehearsal] last batch (part 3 of 9")):
        last.write_bytes(content)
        store.put_folder("short", tmp_path / "short")
        result = run("longhaul", *words, "--rehearse", env=env, check=False)
        assert result.returncode == WRONG, (result.stdout, result.stderr)
        assert said in result.stderr and last.name in result.stderr, result.stderr
        assert not steps_of(tmp_path / "run")
