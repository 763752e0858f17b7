"""What is written to an address is whole there or counts as nothing, whoever else writes there."""

import json
import os
import subprocess

import pytest
import torch
from fault_proxy import FaultProxy, Rule
from outcomes import address, files, refused
from processes import kill_all
from programs import BIN
from servers import environment
from transformers import LlamaForCausalLM


def test_what_is_written_to_an_address_is_what_is_written_to_a_directory(run, local, filled,
                                                                         tmp_path):
    build = ["data", "build", local / "corpus/*.txt", "--tokenizer", local / "model", "--out"]
    export = ["export", local / "run", "--out"]
    with FaultProxy(filled.endpoint) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        for name, words in (("built", build), ("built b+e=%20ü/b c", build),
                            ("exported", export)):
            run("longhaul", *words, address(name), env=env)
            run("longhaul", *words, tmp_path / name, env=env)
            filled.get_folder(name, tmp_path / f"{name}-there")
            assert files(tmp_path / name) == files(tmp_path / f"{name}-there")
            # A second upload does not replace the first one.
            refused(run("longhaul", *words, address(name), check=False, env=env), address(name))
        # The files that make a directory a store are sent last.
        sent = [r.path for r in proxy.requests if r.method in ("PUT", "POST")]
        assert not [path for path in sent if path.endswith("/")]  # keys nobody asked for
        assert [path for path in sent if "/built/" in path][-1] == "corpus/built/store.json"


def test_objects_are_replaced_only_where_force_means_them(run, local, filled, env):
    build = ["data", "build", local / "corpus/*.txt", "--tokenizer", local / "model", "--out"]
    filled.put_folder("taken-val", local / "store-val")
    refused(run("longhaul", *build, address("taken"), "--holdout", "20%", check=False, env=env),
            address("taken-val"))
    filled.put_folder("taken", local / "model")
    before = filled.keys("taken")
    refused(run("longhaul", *build, address("taken"), "--force", check=False, env=env),
            address("taken"), "store.json")
    # A whole store in a directory below another store is not replaced either.
    filled.put_folder("above", local / "store")
    filled.put_folder("above/below", local / "store-val")
    before += filled.keys("above")
    refused(run("longhaul", *build, address("above"), "--force", check=False, env=env),
            address("above/below/store.json"), "another directory")
    assert [*filled.keys("taken"), *filled.keys("above")] == before


def test_a_key_that_is_no_path_is_found_before_anything_is_replaced(run, local, servers, tmp_path):
    """rclone's server keeps files, which cannot have such names, so moto is used."""
    store = servers("moto")
    store.put_folder("unnamed", local / "store-val")
    store.put("unnamed//x", b"of another program")
    before = {key: store.get(key) for key in store.keys("unnamed/")}
    refused(run("longhaul", "data", "build", local / "corpus/*.txt", "--tokenizer", local / "model",
                "--out", address("unnamed"), "--force", check=False,
                env=environment(tmp_path / "home", store.endpoint)),
            address("unnamed//x"), "part that is empty")
    assert {key: store.get(key) for key in store.keys("unnamed/")} == before


@pytest.mark.parametrize("words", [["export", "run"], ["data", "build", "corpus/*.txt"]],
                         ids=["export", "build"])
def test_where_no_reader_would_find_it_nothing_is_written(run, local, filled, env, words):
    """Readers take an object before a prefix of the same name, and they read a pattern as a
    pattern."""
    *verb, source = words
    command = ["longhaul", *verb, local / source, "--out"]
    if "build" in words:
        command[-1:] = ["--tokenizer", local / "model", "--out"]
    filled.put("there.jsonl", b"{}\n")
    refused(run(*command, address("there.jsonl"), check=False, env=env), address("there.jsonl"),
            "an object of this name")
    for name in ("y*", "w[1]", "v?"):
        refused(run(*command, address(name), check=False, env=env), "s3://corpus/")
    assert filled.keys("there") == ["there.jsonl"]
    assert [key for key in filled.keys() if key.startswith(("y", "w[", "v"))] == []
    # Slashes at the end do not belong to the name.
    written = address(f"written-{words[0]}")
    run(*command, written + "//", env=env)
    assert filled.keys(f"written-{words[0]}/")
    refused(run(*command, written, check=False, env=env), "lie there already")


def test_an_upload_that_was_ended_goes_on(run, local, filled, tmp_path):
    build = ["longhaul", "data", "build", local / "corpus/*.txt", "--tokenizer", local / "model",
             "--holdout", "20%", "--out", address("ended")]
    denied = Rule("AccessDenied", methods=("PUT", "POST"), keys="corpus/ended-val/store.json",
                  times=1)
    with FaultProxy(filled.endpoint, [denied]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        refused(run(*build, check=False, env=env), address("ended-val"))
        run(*build, env=env)
    for name in ("ended", "ended-val"):
        filled.get_folder(name, tmp_path / name)
    assert files(tmp_path / "ended") == files(local / "store")
    assert files(tmp_path / "ended-val") == files(local / "store-val")


def test_a_forced_upload_that_fails_loses_no_more_than_it_must(run, local, filled, tmp_path):
    build = ["longhaul", "data", "build", local / "corpus/*.txt", "--tokenizer", local / "model",
             "--out"]
    filled.put_folder("forced", local / "store-val")
    filled.put("forced/tokens_00099.bin", b"of the old store")
    before = {key: filled.get(key) for key in filled.keys("forced/")}

    def denied(keys):
        proxy.rules = [Rule("AccessDenied", methods=("PUT", "POST"), keys=keys, times=1)]
        return run(*build, address("forced"), "--force", check=False, env=env)

    with FaultProxy(filled.endpoint) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        refused(denied("corpus/forced/"), "nothing was changed at " + address("forced"))
        assert {key: filled.get(key) for key in filled.keys("forced/")} == before
        refused(denied("corpus/forced/tokens"), "what was there before is lost")
        assert "forced/store.json" not in filled.keys("forced/")
        assert list((tmp_path / "home/cache/longhaul/uploads").rglob("tokens_*"))
        run(*build, address("forced"), "--force", env=env)
    filled.get_folder("forced", tmp_path / "there")
    run(*build, tmp_path / "here")
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert not list((tmp_path / "home/cache/longhaul/uploads").rglob("tokens_*"))


def test_an_export_that_was_not_sent_is_made_anew_and_sent(run, local, filled, tmp_path):
    export = ["longhaul", "export", local / "run", "--out"]
    uploads = tmp_path / "home/cache/longhaul/uploads"
    denied = Rule("AccessDenied", methods=("PUT", "POST"), keys="unsent/config.json", times=1)
    with FaultProxy(filled.endpoint, [denied]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        refused(run(*export, address("unsent"), check=False, env=env), str(uploads))
        assert list(uploads.rglob("*.safetensors"))
        # Another program has written to the address in the meantime.
        filled.put("unsent/config.json", b"{}")
        refused(run(*export, address("unsent"), check=False, env=env), "lie there already")
        assert filled.get("unsent/config.json") == b"{}"
        filled.remove("unsent/config.json")
        run(*export, address("unsent"), env=env)
    filled.get_folder("unsent", tmp_path / "there")
    run(*export, tmp_path / "here")
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert not list(uploads.rglob("*.safetensors"))


def test_an_upload_that_was_killed_when_it_was_whole_is_told_as_such(run, local, filled, tmp_path):
    export, uploads = ["export", local / "run", "--out"], tmp_path / "home/cache/longhaul/uploads"

    def kill():
        kill_all(process)

    last = Rule("call", methods=("PUT", "POST"), keys="corpus/killed/config.json", times=1,
                call=kill)
    with FaultProxy(filled.endpoint, [last]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        process = subprocess.Popen(
            [BIN / "longhaul", *map(str, export), address("killed")],
            env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert process.wait(timeout=60) != 0
        assert list(uploads.rglob("*.safetensors")) and list(uploads.glob("*.begun"))
        refused(run("longhaul", *export, address("killed"), check=False, env=env),
                address("killed"), "uploaded all of it")
        assert not list(uploads.rglob("*.safetensors")) and not list(uploads.glob("*.begun"))
        refused(run("longhaul", *export, address("killed"), check=False, env=env),
                address("killed"), "lie there already")
    filled.get_folder("killed", tmp_path / "there")
    run("longhaul", *export, tmp_path / "here")
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_verbs_tell_the_address_to_which_they_write(run, local, filled, env, tmp_path):
    model = LlamaForCausalLM.from_pretrained(local / "model")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.arange(8).view(1, 8)).logits.square().mean().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
               tmp_path / "moments.pt")

    def told(name, *words):
        said = run("longhaul", *words, "--out", address(name), env=env).stdout
        assert str(tmp_path / "home") not in said, said
        return said

    build = ["data", "build", local / "corpus/*.txt", "--tokenizer", local / "model", "--holdout",
             "20%"]
    bring = ["import", tmp_path / "moments.pt", "--config", local / "model"]
    said = told("told-a", *build)
    for name in ("told-a", "told-a-val"):
        assert f"token store {address(name)}, complete" in said
    said = json.loads(told("told-b", *build, "--json"))
    assert said["train"]["path"] == address("told-b")
    assert said["validation"]["path"] == address("told-b-val")
    assert f" to {address('told-c')}: " in told("told-c", "export", local / "run")
    assert f"imported to {address('told-d')}: " in told("told-d", *bring)
    said = told("told-e", *bring, "--format", "checkpoint")
    assert f"imported to {address('told-e')}/step_00000001: " in said
    assert "copy it to a file system first" in said and 'resume = "s3://' not in said


# --- two uploads to one address

CLAIM = ".longhaul-upload"


def test_a_second_command_of_the_machine_is_refused(run, local, filled, tmp_path):
    export, refusals = ["longhaul", "export", local / "run", "--out"], []
    build = ["longhaul", "data", "build", local / "corpus/*.txt", "--tokenizer", local / "model",
             "--force", "--out"]

    def second():
        for words in (export, build):
            refusals.append(run(*words, address("twice"), check=False, env=env))
        for name in ("twice/below", "twice/model/below"):
            refusals.append(run(*export, address(name), check=False, env=env))

    during = Rule("call", methods=("PUT", "POST"), keys="corpus/twice/model", times=1, call=second)
    with FaultProxy(filled.endpoint, [during]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        run(*export, address("twice"), env=env)
    assert len(refusals) == 4
    for refusal in refusals:
        refused(refusal, address("twice"), "another command of this machine")
    filled.get_folder("twice", tmp_path / "there")
    run(*export, tmp_path / "here")
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_an_upload_touches_none_that_is_whole_below_it(run, local, filled, tmp_path):
    """The other store is made by another machine, since one machine would refuse it."""
    export = ["longhaul", "export", local / "run", "--out"]
    other = Rule("call", methods=("PUT", "POST"), keys="corpus/upper/model", times=1,
                 call=lambda: run(*export, address("upper/lower"),
                                  env=environment(tmp_path / "other", filled.endpoint)))
    with FaultProxy(filled.endpoint, [other]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        refused(run(*export, address("upper"), check=False, env=env), address("upper"),
                address("upper/lower/"), "counts as nothing")
    assert "upper/config.json" not in filled.keys("upper")
    filled.get_folder("upper/lower", tmp_path / "there")
    run(*export, tmp_path / "here")
    assert files(tmp_path / "there") == files(tmp_path / "here")


@pytest.mark.parametrize("moment, key", [
    ("model.safetensors", CLAIM), ("config.json", CLAIM),
    ("model.safetensors", "model-00002-of-00002.safetensors")])
def test_an_upload_that_is_not_alone_is_never_whole(run, local, filled, tmp_path, moment, key):
    export, name = ["longhaul", "export", local / "run", "--out"], f"beside-{len(moment + key)}"
    other = Rule("call", methods=("PUT", "POST"), keys=f"corpus/{name}/{moment}", times=1,
                 call=lambda: filled.put(f"{name}/{key}", b"of another upload"))
    with FaultProxy(filled.endpoint, [other]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        refused(run(*export, address(name), check=False, env=env), address(name),
                "another command has been uploading", "counts as nothing")
        left = filled.keys(name)
        assert f"{name}/model.safetensors" in left and f"{name}/config.json" not in left
        if key != CLAIM:  # that one is of no living upload
            refused(run(*export, address(name), check=False, env=env), "lie there already")
            filled.remove(f"{name}/{key}")
        run(*export, address(name), env=env)
    filled.get_folder(name, tmp_path / "there")
    run(*export, tmp_path / "here")
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_uploads_of_two_machines_leave_no_mixture_that_counts(run, local, filled, tmp_path):
    """The second upload does not see the first one, overtakes it, and is whole before the first one
    sends."""
    export, others = ["longhaul", "export", local / "run", "--out", address("mixed")], []

    def overtake():
        if not others and f"mixed/{CLAIM}" in filled.keys("mixed/"):
            others.append("began")
            others.append(run(*export, "--dtype", "bf16", check=False,
                              env=environment(tmp_path / "other", filled.endpoint)))

    listing = Rule("call", keys="^corpus/?$", query="prefix=mixed", call=overtake)
    with FaultProxy(filled.endpoint, [listing]) as proxy:
        env = environment(tmp_path / "home", proxy.endpoint)
        first = run(*export, check=False, env=env)
        assert others[1].returncode == 0, others[1].stderr
        refused(first, address("mixed"), "another command has been uploading",
                "start one of the two again")
        assert "mixed/config.json" not in filled.keys("mixed/")
        run(*export, env=env)
        refused(run(*export, check=False, env=environment(tmp_path / "other", filled.endpoint)),
                address("mixed"), "lie there already")
    filled.get_folder("mixed", tmp_path / "there")
    run("longhaul", "export", local / "run", "--out", tmp_path / "here")
    assert files(tmp_path / "there") == files(tmp_path / "here")
