"""Attacks and wrecks in place of a checkpoint: `longhaul import` refuses them with exit code 78 and
a reason, runs no code of theirs, and leaves no file behind."""

import io
import os
import pickle
import struct
import zipfile

import nxd_layouts as nxd
import pytest
import torch


def word(text):
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def container(data, storages=None, names=None):
    """The bytes of torch's zip form around a pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("m/data.pkl", data)
        archive.writestr("m/byteorder", "little")
        for name, content in (storages or {}).items():
            archive.writestr(f"m/data/{name}", content)
        for name in names or []:
            archive.writestr(name, b"x")
    return out.getvalue()


class Call:
    """An object that is pickled as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.fixture
def refuse(run, tmp_path):
    """Returns a function that imports a file and expects a refusal."""
    nxd.make_state(tmp_path / "hf")

    def call(source, *parts, **options):
        if isinstance(source, bytes):
            (tmp_path / "m.pt").write_bytes(source)
            source = tmp_path / "m.pt"
        before = set(os.listdir(tmp_path))
        result = run("longhaul", "import", source, "--config", tmp_path / "hf", "--out",
                     tmp_path / "out", check=False, **options)
        assert result.returncode == 78, (result.returncode, result.stderr)
        for part in parts:
            assert part in result.stderr
        assert set(os.listdir(tmp_path)) == before
        return result.stderr

    return call


def programs(command):
    """Every instruction by which a pickle can call something."""
    system, argument = b"cposix\nsystem\n", word(command)
    return {
        "reduce": system + b"(" + argument + b"tR.",
        "inst": b"(" + argument + b"iposix\nsystem\n.",
        "obj": b"(" + system + argument + b"o.",
        "newobj": system + b"(" + argument + b"t\x81.",
        "newobj_ex": system + b"(" + argument + b"t}\x92.",
        "stack_global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93(" + argument + b"tR.",
        "build": b"ccollections\nOrderedDict\n)R}" + word("__setstate__") + system + b"sb.",
        "in_state": b"cargparse\nNamespace\n)\x81" + system + b"(" + argument + b"tRb.",
        "os.system": pickle.dumps({"w": Call(os.system, command)}, 2),
        "eval": pickle.dumps({"w": Call(eval, f"__import__('os').system({command!r})")}, 4),
        "exec": pickle.dumps([Call(exec, "import os")], 5),
        "getattr": b"cbuiltins\ngetattr\n(cposix\nsystem\n" + word("__call__") + b"tR.",
        "import": b"cimportlib\nimport_module\n(" + word("os") + b"tR.",
        "extension": b"\x82\x01.",
    }


NAMED = {"eval": "builtins.eval", "exec": "builtins.exec", "import": "importlib.import_module",
         "extension": "0x82"}


@pytest.mark.parametrize("name", programs("x"))
def test_a_pickle_that_calls_something_is_refused_and_nothing_runs(refuse, tmp_path, name):
    canary = tmp_path / "canary"
    data = programs(f"touch {canary}")[name]
    expected = NAMED.get(name, "posix.system")
    refuse(container(data), expected)
    if name not in ("reduce", "stack_global", "build"):
        return
    for protocol in (2, 4, 5):
        stream = (pickle.dumps(0x1950A86A20F9469CFC6C, protocol) + pickle.dumps(1001, protocol)
                  + pickle.dumps({"little_endian": True}, protocol) + data)
        refuse(stream, expected)
    (tmp_path / "dcp").mkdir()
    (tmp_path / "dcp" / ".metadata").write_bytes(data)
    refuse(tmp_path / "dcp", expected)
    assert not canary.exists()


def test_attacks_inside_of_rank_files_are_refused(refuse, tmp_path):
    config, state = nxd.make_state(tmp_path / "hf")
    canary = tmp_path / "canary"
    attack = container(programs(f"touch {canary}")["reduce"])
    nxd.write_model(tmp_path / "ckpt", nxd.shard(state, config, 2, 1), xser=True)
    reference = tmp_path / "ckpt" / "dp_rank_00_tp_rank_01_pp_rank_00.pt"
    part = tmp_path / "ckpt" / "dp_rank_00_tp_rank_00_pp_rank_00.pt.tensors" / "tensor_3.pt"
    for path in (part, reference):
        good = path.read_bytes()
        path.write_bytes(attack)
        refuse(tmp_path / "ckpt", path.name, "posix.system")
        path.write_bytes(good)
    assert not canary.exists()


def deep(depth, pair=False):
    """A pickle of a list in a list in a list, or of a tuple that holds the one before twice."""
    step = b"2\x86" if pair else b"\x85"
    return b"}" + word("x") + b")" + step * depth + b"s."


@pytest.mark.parametrize("data,reason", [
    (b"Nr\xff\xff\xff\x7f.", "memo entry"),
    (b"]K\x01K\x02s.", "puts keys into a list"),
    (b"\x8d" + struct.pack("<Q", 1 << 60) + b"x.", "are left"),
    (b"\x8b\xff\xff\xff\x7f.", "are left"),
    (b"\x80\x05\x96" + struct.pack("<Q", 1 << 62) + b"x.", "are left"),
    (b"\x80\x05\x8e" + struct.pack("<Q", 1 << 63) + b"x.", "are left"),
    (b"\x80\x04\x95" + struct.pack("<Q", 1 << 63) + b"N.", "a frame past the end"),
    (b"\x80\x05N\x97.", "0x97"),
    (b"\x80\x05N\x98.", "0x98"),
    (b"\x80\x04K\x01\x8c\x01x\x93.", "a name that is no text"),
    (b"\x80\x04" + b"\x94.", "empty stack"),
    (b"(" * 100_000 + b".", "values"),
    (b"", "truncated"),
    (b"]q\x00h\x00a.", "no state dict"),
    (deep(200), "nested more than 64 deep"),
    (deep(100_000), "nested more than 64 deep"),
    (deep(200, pair=True), "nested more than 64 deep"),
], ids=lambda value: None if isinstance(value, bytes) else value.replace(" ", "_"))
def test_broken_and_exploding_pickles_are_refused(refuse, data, reason):
    tensor = (b"ctorch._utils\n_rebuild_tensor_v2\n((" + word("storage") + b"ctorch\nFloatStorage\n"
              + word("0") + word("cpu") + b"K\x04tQK\x00K\x04\x85K\x01\x85\x89}tR")
    if data.endswith(b"s."):  # a state dict with a tensor beside it
        data = data[:-1] + word("w") + tensor + b"s."
    refuse(container(data, {"0": bytes(16)}), reason)


def view(count=b"K\x04", offset=b"K\x00", shape=b"K\x04\x85", strides=b"K\x01\x85"):
    return (b"}" + word("w") + b"ctorch._utils\n_rebuild_tensor_v2\n((" + word("storage")
            + b"ctorch\nFloatStorage\n" + word("0") + word("cpu") + count + b"tQ" + offset
            + shape + strides + b"\x89}tRs.")


HUGE = b"\x8a\x08" + struct.pack("<q", (1 << 62))


@pytest.mark.parametrize("data,size,reason", [
    (view(), 12, "should have 16 bytes, but has 12"),
    (view(offset=b"K\x01"), 16, "up to element 4"),
    (view(shape=HUGE + b"\x85"), 16, "63 bits"),
    (view(count=HUGE), 16, "2^62 bytes"),
    (view(shape=b"K\x64\x85", strides=b"K\x00\x85"), 16, "100 elements over a storage of 4"),
])
def test_tensors_that_do_not_lie_in_their_storage_are_refused(refuse, data, size, reason):
    refuse(container(data, {"0": bytes(size)}), reason)


def test_a_storage_without_data_is_refused(refuse):
    refuse(container(view()), "no data of storage '0'")


def test_wrecked_archives_are_refused(refuse, tmp_path):
    _, state = nxd.make_state(tmp_path / "hf")
    torch.save(state, tmp_path / "good.pt")
    good = (tmp_path / "good.pt").read_bytes()
    for size in (0, 4, 1000, len(good) // 2, len(good) - 1):
        refuse(good[:size])
    torch.save(state, tmp_path / "good.pt", _use_new_zipfile_serialization=False)
    stream = (tmp_path / "good.pt").read_bytes()
    for size in (8, 900, len(stream) - 1):
        refuse(stream[:size])
    refuse(container(view(), {"0": bytes(16)}, ["../outside"]), "leaves the archive")
    refuse(container(view(), {"0": bytes(16)}, ["/etc/passwd"]), "leaves the archive")
    # Two entries of the zip directory stand for the same bytes.
    broken = bytearray(container(view(), {"0": bytes(16), "1": bytes(16)}))
    ends = [i for i in range(len(broken)) if broken[i:i + 4] == b"PK\x01\x02"]
    broken[ends[3] + 42:ends[3] + 46] = broken[ends[2] + 42:ends[2] + 46]
    refuse(bytes(broken), "byte")
    damaged = bytearray(good)
    at = damaged.find(b"model.embed_tokens")
    damaged[at] ^= 1
    refuse(bytes(damaged), "checksum of data.pkl")


def test_links_that_leave_the_checkpoint_are_refused(refuse, tmp_path):
    config, state = nxd.make_state(tmp_path / "hf")
    nxd.write_model(tmp_path / "a", nxd.shard(state, config, 2, 1))
    secret = tmp_path / "a" / "dp_rank_00_tp_rank_01_pp_rank_00.pt"
    secret.rename(tmp_path / "elsewhere.pt")
    secret.symlink_to(tmp_path / "elsewhere.pt")
    refuse(tmp_path / "a", "leads out of")
    nxd.write_model(tmp_path / "b", nxd.shard(state, config, 1, 1), xser=True)
    tensors = tmp_path / "b" / "dp_rank_00_tp_rank_00_pp_rank_00.pt.tensors"
    tensors.rename(tmp_path / "outside")
    tensors.symlink_to(tmp_path / "outside")
    refuse(tmp_path / "b", "leads out of")
    secret.unlink()
    os.mkfifo(secret)
    refuse(tmp_path / "a", "is not a regular file")


def test_a_distributed_checkpoint_that_names_files_elsewhere_is_refused(refuse, tmp_path):
    import torch.distributed.checkpoint as dcp
    _, state = nxd.make_state(tmp_path / "hf")
    dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    metadata = tmp_path / "dcp" / ".metadata"
    good = metadata.read_bytes()
    name = b"__0_0.distcp"
    assert name in good
    metadata.write_bytes(good.replace(name, b"../../../x.y"))
    refuse(tmp_path / "dcp", "..")
    metadata.write_bytes(good.replace(name, b"__9_9.distcp"))
    refuse(tmp_path / "dcp", "__9_9.distcp")
    metadata.write_bytes(good[: len(good) // 2])
    refuse(tmp_path / "dcp", "past the end")
    metadata.write_bytes(good)
    data = tmp_path / "dcp" / "__0_0.distcp"
    data.write_bytes(data.read_bytes()[:-5000])
    refuse(tmp_path / "dcp", "bytes")
