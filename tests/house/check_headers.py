"""Every header compiles alone: it includes what it uses.

Each header borrows the flags of a unit of its own folder: of the one with most of them, and
where that is another kind (more of a processor, less of LibTorch) of any other.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import tempfile

import house


def flags_by_folder(database):
    """folder -> its different compiler calls without source, output and precompiled header."""
    found = {}
    for entry in json.load(open(database, encoding="utf-8")):
        folder = os.path.dirname(os.path.relpath(entry["file"], house.ROOT))
        words, kept, skip = shlex.split(entry["command"]), [], False
        for word, following in zip(words, words[1:] + [""]):
            if skip:
                skip = False
            elif word in ("-o", "-c") or (word == "-include" and "cmake_pch" in following):
                skip = True
            elif not word.endswith("ccache") and word != entry["file"]:
                kept.append(word)
        if kept not in found.setdefault(folder, []):
            found[folder].append(kept)
    return {folder: sorted(calls, key=len, reverse=True) for folder, calls in found.items()}


def compile_alone(header, commands, directory):
    unit = os.path.join(directory, header.replace("/", "_") + ".cpp")
    with open(unit, "w", encoding="utf-8") as out:
        out.write(f'#include "{header}"\n#include "{header}"\n')
    said = []
    for command in commands:
        done = subprocess.run(command + ["-fsyntax-only", unit], capture_output=True, text=True,
                              cwd=house.ROOT)
        if done.returncode == 0:
            return None
        said.append(done.stderr[:2000])
    return f"{header}:\n{said[0]}"


def main():
    subprocess.run([house.ROOT / "tools" / "each_unit.sh"], check=True)
    folders = flags_by_folder(house.ROOT / "build" / "each" / "compile_commands.json")
    # The units of what tests share lie there without LibTorch; some headers are for tests with it.
    folders["tests/support"] += folders["tests/dist"]
    with tempfile.TemporaryDirectory() as directory:
        jobs = []
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for header in house.files(".h"):
                folder = os.path.dirname(header)
                while folder and folder not in folders:
                    folder = os.path.dirname(folder)
                if folder and not header.startswith(("longhaul/cuda/kernels", "tests/cuda_host")):
                    jobs.append(pool.submit(compile_alone, header, folders[folder], directory))
    problems = [job.result() for job in jobs if job.result()]
    house.finish("headers", problems, len(jobs))


if __name__ == "__main__":
    main()
