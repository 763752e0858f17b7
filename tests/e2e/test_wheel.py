"""A wheel of the build in an empty environment: the command runs, finds its files, and says what
does not fit."""

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
import zipfile

import pytest
from programs import BIN, SOURCE, plant_libraries

sys.path.insert(0, str(SOURCE / "tests" / "resume"))
from runs import curve, write_config  # noqa: E402

BESIDE = ("torch", "pyarrow")


def make_wheel(out):
    made = subprocess.run([SOURCE / "tools" / "wheel.py", "--build", BIN.parent, "--out", out],
                          capture_output=True, text=True, timeout=200)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return make_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def environment(tmp_path, wheel):
    """An environment with the wheel, and with links to torch and pyarrow."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    subprocess.run([sys.executable, "-m", "pip", "--python", tmp_path / "env", "install",
                    "--quiet", "--no-index", "--no-deps", wheel], check=True, timeout=200)
    (packages,) = (tmp_path / "env" / "lib").glob("python3*/site-packages")
    for name in BESIDE:
        info = importlib.metadata.distribution(name)._path
        os.symlink(info.parent / name, packages / name)
        os.symlink(info, packages / info.name)
    return tmp_path / "env"


def longhaul(environment, *arguments, **options):
    """Runs the command of the wheel with no environment variables."""
    return subprocess.run([environment / "bin/longhaul", *map(str, arguments)], env={},
                          capture_output=True, text=True, timeout=200, **options)


def info_of(environment, name):
    (path,) = environment.glob(f"lib/python3*/site-packages/{name}-*.dist-info")
    return path


def test_twenty_steps_are_those_of_the_build(environment, run, tmp_path):
    ours, theirs = write_config(tmp_path, "wheel"), write_config(tmp_path, "build")
    steps = ("--set", "run.steps=20")
    result = longhaul(environment, "train", ours, *steps)
    assert result.returncode == 0, result.stderr
    run("longhaul", "train", theirs, *steps)
    assert len(curve(tmp_path / "wheel")) == 20
    assert curve(tmp_path / "wheel") == curve(tmp_path / "build")


def test_it_carries_the_pages_the_machines_and_the_recipes_with_their_models(environment, tmp_path):
    for page in ("data", "docs/offline.md", "troubleshooting#exit-codes", "readme", "changelog"):
        shown = longhaul(environment, "docs", page)
        assert shown.returncode == 0 and shown.stdout.startswith("#"), shown.stderr
    (share,) = environment.glob("lib/python3*/site-packages/longhaul_train/share/longhaul")
    assert {p.name for p in share.glob("docs/*")} == {p.name for p in SOURCE.glob("docs/*.md")}
    assert {p.name for p in share.glob("hardware/*")} == \
        {p.name for p in SOURCE.glob("hardware/*.toml")}
    recipe = longhaul(environment, "recipe", "list")
    assert recipe.returncode == 0 and "llama2-7b" in recipe.stdout
    shown = longhaul(environment, "recipe", "show", "llama2-7b", "--out", tmp_path / "run.toml")
    assert shown.returncode == 0, shown.stderr
    checked = longhaul(environment, "config", tmp_path / "run.toml", "--ranks", "8")
    assert checked.returncode == 0, checked.stderr


def test_its_libraries_are_those_of_the_environment_and_of_the_system(environment):
    (package,) = environment.glob("lib/python3*/site-packages/longhaul_train")
    refused = subprocess.run([package / "bin/longhaul-objects"], env={}, capture_output=True, text=True)
    assert refused.returncode == 64 and "longhaul starts this program" in refused.stderr
    for program in ("longhaul", "longhaul-torch"):
        found = subprocess.run(["ldd", package / "bin" / program], env={}, check=True,
                               capture_output=True, text=True).stdout
        assert "not found" not in found
        assert str(SOURCE / "build") not in found
        ours = re.findall(r"lib(?:fmt|simdjson|xxhash|zstd|dw)\.so\S* => (\S+)", found)
        assert len(ours) == 5
        assert all(str(package / "bin/../lib") in path for path in ours), found
    headers = subprocess.run(
        [sys.executable, SOURCE / "tests/house/check_elf.py", "--guarded", package / "bin",
         "--theirs", package / "lib", "--theirs", package / "mpi"], capture_output=True, text=True)
    assert headers.returncode == 0, headers.stderr
    searched = subprocess.run(["patchelf", "--print-rpath", package / "bin/longhaul-torch"],
                              check=True, capture_output=True, text=True).stdout
    assert all(part.startswith("$ORIGIN") for part in searched.strip().split(":"))


def test_files_named_like_libraries_where_it_is_started_are_not_loaded(environment, tmp_path):
    (programs,) = environment.glob("lib/python3*/site-packages/longhaul_train/bin")
    plant_libraries(programs, tmp_path / "planted")
    for arguments in (["--version"], ["bench", "--help"]):
        result = longhaul(environment, *arguments, cwd=tmp_path / "planted")
        assert result.returncode == 0, result.stderr


def pip(environment, *arguments):
    subprocess.run([sys.executable, "-m", "pip", "--python", environment, *arguments],
                   check=True, timeout=200, capture_output=True)


def test_it_starts_as_a_module_and_leaves_nothing_when_it_is_uninstalled(environment):
    python = environment / "bin/python3"
    module = subprocess.run([python, "-m", "longhaul_train", "--version"], env={},
                            capture_output=True, text=True, timeout=200)
    assert module.returncode == 0, module.stderr
    assert module.stdout == longhaul(environment, "--version").stdout
    pip(environment, "uninstall", "--yes", "longhaul-train")
    left = [p for p in environment.rglob("*longhaul*")]
    assert not left


def test_it_starts_from_the_directory_of_a_target(environment, wheel, tmp_path):
    target = tmp_path / "deep" / "target"
    pip(environment, "install", "--no-index", "--no-deps", "--target", target, wheel)
    refused = subprocess.run([target / "bin/longhaul", "--version"], env={}, capture_output=True,
                             text=True, timeout=200)
    assert refused.returncode == 78 and "needs torch" in refused.stderr
    for name in BESIDE:
        info = importlib.metadata.distribution(name)._path
        os.symlink(info.parent / name, target / name)
        os.symlink(info, target / info.name)
    started = subprocess.run([target / "bin/longhaul", "bench", "--help"], env={},
                             capture_output=True, text=True, timeout=200)
    assert started.returncode == 0, started.stderr
    (target / "longhaul_train").rename(target / "elsewhere")
    lost = subprocess.run([target / "bin/longhaul"], env={}, capture_output=True, text=True)
    assert lost.returncode == 78
    assert "run pip install with the file longhaul_train-0.2.0-....whl again" in lost.stderr


def test_a_build_of_another_checkout_is_refused(tmp_path):
    build = tmp_path / "build"
    (build / "bin").mkdir(parents=True)
    for name in ("longhaul", "longhaul-torch"):
        (build / "bin" / name).touch()
    (build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={tmp_path}\n")
    made = subprocess.run([SOURCE / "tools/wheel.py", "--build", build, "--out", tmp_path / "dist"],
                          capture_output=True, text=True, timeout=200)
    checked = subprocess.run([SOURCE / "tools/own_build.sh", build], capture_output=True, text=True)
    for result in (made, checked):
        assert result.returncode == 1
        assert f"made for the checkout {tmp_path}" in result.stderr
        assert f"run: rm -rf {build}" in result.stderr
    assert not (tmp_path / "dist").exists()
    assert subprocess.run([SOURCE / "tools/own_build.sh", BIN.parent]).returncode == 0


@pytest.mark.parametrize("name,other", [("torch", "torch-2.1.2"), ("pyarrow", "pyarrow-3.0"),
                                        ("torch", None)])
def test_another_version_beside_it_is_said_with_what_to_install(environment, name, other):
    info = info_of(environment, name)
    wanted = re.match(r"\d+\.\d+" if name == "torch" else r"\d+",
                      info.name[len(name) + 1:]).group(0)
    info.unlink()
    if other:
        (info.parent / f"{other}.dist-info").mkdir()
    result = longhaul(environment, "--help")
    assert result.returncode == 78
    assert result.stderr == (
        f"[install] longhaul 0.2.0 needs {name} {wanted} in its environment, which has "
        f"{other or 'none'}; run: pip install '{name}=={wanted}.*'\n")


@pytest.mark.soak
def test_the_same_build_gives_the_same_bytes(wheel, tmp_path):
    again = make_wheel(tmp_path)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_it_is_small_and_names_what_it_needs(wheel):
    assert wheel.stat().st_size < 60e6
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (n for n in names if n.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    torch = importlib.metadata.version("torch").split("+")[0].split(".")
    assert f"Requires-Dist: torch >={torch[0]}.{torch[1]},<{torch[0]}.{int(torch[1]) + 1}" in text
    assert not any(re.search(r"lib(torch|arrow|c10|stdc\+\+|gomp)", n) for n in names)
    assert re.search(r"-py3-none-manylinux_2_\d+_x86_64\.whl$", wheel.name)


def test_it_names_its_licence_and_brings_those_of_all_that_it_carries(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (info,) = {n.split("/")[0] for n in names if n.endswith(".dist-info/METADATA")}
        metadata = archive.read(f"{info}/METADATA").decode()
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert "\nLicense-Expression: Apache-2.0 AND " in metadata and "LGPL-2.1-or-later" in metadata
    assert "Apache License" in licence
    for name in ("NOTICE", "zlib1g", "liblzma5", "libbz2-1.0", "libhdf5-dev", "libsodium-dev",
                 "libcmark-gfm-dev", "libyaml-dev", "libcli11-dev", "libtomlplusplus-dev", "nlohmann-json3-dev",
                 "llama.cpp"):
        assert f"{info}/licenses/{name}" in names
    carried = [n for n in names if re.search(r"^longhaul_train/(lib|mpi)/", n)]
    assert carried
    texts = [n for n in names if n.startswith(f"{info}/licenses/")]
    assert sorted(re.findall("^License-File: (.*)$", metadata, re.M)) == sorted(
        n.removeprefix(f"{info}/licenses/") for n in texts)
    # The wheel has a copy of each licence text that only Debian machines have.
    with zipfile.ZipFile(wheel) as archive:
        pointed = {name for n in texts for name in
                   re.findall(rb"/usr/share/common-licenses/([\w+-]+(?:\.\w+)*)", archive.read(n))}
        lesser = archive.read(f"{info}/licenses/common-licenses/LGPL-2.1").decode()
    assert {f"{info}/licenses/common-licenses/{name.decode()}" for name in pointed} <= set(texts)
    assert len(pointed) > 4 and "GNU LESSER GENERAL PUBLIC LICENSE" in lesser
    assert len(texts) >= len({re.sub(r"[_-].*|\.so.*", "", n) for n in carried})


def test_a_library_without_a_licence_ends_the_collection(tmp_path):
    """A library whose licence the search cannot find is reported, not skipped."""
    alien = tmp_path / "libalien.so.1"
    alien.write_bytes(b"")
    result = subprocess.run([SOURCE / "tools" / "licences.py", tmp_path / "out", alien],
                            capture_output=True, text=True)
    assert result.returncode == 1
    assert "none found of" in result.stderr and "libalien.so.1" in result.stderr
