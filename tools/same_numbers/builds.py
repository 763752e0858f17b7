"""Programs of a commit: a git worktree of its own, built as `make program` does."""

import hashlib
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "same_numbers"
PROGRAMS = ("longhaul", "longhaul-torch")


class CannotBuild(Exception):
    """What was asked for is no commit, or its programs cannot be built."""


def git(*words, where=ROOT):
    done = subprocess.run(["git", "-C", str(where), *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotBuild(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def commit_of(text):
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    except CannotBuild:
        raise CannotBuild(f"'{text}' is no directory with the program longhaul, no recorded "
                          "file and no commit") from None


def worktree(commit):
    """The commit's files, made once; a tree that somebody changed is not that commit's."""
    tree = PLACE / commit[:12]
    if not tree.exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        # --force: `make clean` removes the files and leaves git's note of them.
        git("worktree", "add", "--force", "--detach", str(tree), commit)
    top = pathlib.Path(git("rev-parse", "--show-toplevel", where=tree)).resolve()
    if (top != tree.resolve() or git("rev-parse", "HEAD", where=tree) != commit
            or git("status", "--porcelain", "--untracked-files=no", where=tree)):
        raise CannotBuild(f"{tree} does not hold commit {commit[:12]} as it is: remove it")
    return tree


def stamp_of(tree):
    """What tools/deps.sh compares to see whether .venv is what the commit asks for."""
    names = [tree / f"requirements{kind}.txt" for kind in ("", "-test", "-files")]
    return hashlib.sha256(b"".join(n.read_bytes() for n in names if n.exists())).hexdigest()


def link_shared(tree):
    """Shares .cache, and .venv where the commit asks for the same packages; else it gets its
    own. True where .venv is shared."""
    if (ROOT / ".cache").is_dir() and not os.path.lexists(tree / ".cache"):
        (tree / ".cache").symlink_to((ROOT / ".cache").resolve())
    ours, theirs = ROOT / ".venv", tree / ".venv"
    stamp = ours / "longhaul-stamp"
    fits = stamp.exists() and stamp.read_text().split()[:1] == [stamp_of(tree)]
    if theirs.is_symlink() and not fits:
        theirs.unlink()
    if fits and not os.path.lexists(theirs):
        theirs.symlink_to(ours.resolve())
    return theirs.is_symlink()


def steps_of(tree, shared):
    steps = [] if shared else [["tools/deps.sh"]]
    if not (tree / "build" / "build.ninja").exists():
        steps.append(["cmake", "--preset", "cpu-release"])
    jobs = os.environ.get("JOBS") or str(os.cpu_count())
    return [*steps, ["cmake", "--build", "build", "-j", jobs, "--target", "longhaul"]]


def build(text, say):
    """The directory of the programs of a commit, and the commit."""
    commit = commit_of(text)
    tree = worktree(commit)
    log = PLACE / f"{commit[:12]}.log"
    say(f"building {commit[:12]} in {tree}, log {log}")
    # As the Makefile has it: what another checkout has compiled counts here.
    environment = {**os.environ, "CCACHE_BASEDIR": str(tree), "CCACHE_SLOPPINESS":
                   "pch_defines,time_macros,include_file_mtime,include_file_ctime"}
    with log.open("w") as file:
        for words in steps_of(tree, link_shared(tree)):
            try:
                code = subprocess.run(words, cwd=tree, env=environment, stdout=file,
                                      stderr=subprocess.STDOUT,
                                      stdin=subprocess.DEVNULL).returncode
            except OSError as error:
                raise CannotBuild(f"{words[0]}: {error}") from None
            if code != 0:
                told = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                raise CannotBuild(f"{commit[:12]}: '{' '.join(words)}' ended with {code}; the "
                                  f"last lines of {log}:\n{told}")
    programs = tree / "build" / "bin"
    missing = [name for name in PROGRAMS if not (programs / name).exists()]
    if missing:
        raise CannotBuild(f"{commit[:12]}: the build made no {' and no '.join(missing)}")
    return programs, commit
