"""Every header compiles alone: it includes what it uses.

Each header borrows the flags of a unit of its own folder.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import tempfile

import house


def flags_by_folder(database):
    """folder -> compiler call without source, output and precompiled header."""
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
        # Units that link little are compiled with little.
        found[folder] = max(found.get(folder, []), kept, key=len)
    return found


def compile_alone(header, command, directory):
    unit = os.path.join(directory, header.replace("/", "_") + ".cpp")
    with open(unit, "w", encoding="utf-8") as out:
        out.write(f'#include "{header}"\n#include "{header}"\n')
    done = subprocess.run(command + ["-fsyntax-only", unit], capture_output=True, text=True,
                          cwd=house.ROOT)
    return f"{header}:\n{done.stderr[:2000]}" if done.returncode else None


def main():
    subprocess.run([house.ROOT / "tools" / "each_unit.sh"], check=True)
    folders = flags_by_folder(house.ROOT / "build" / "each" / "compile_commands.json")
    with tempfile.TemporaryDirectory() as directory:
        jobs = []
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for header in house.files(".h"):
                folder = os.path.dirname(header)
                while folder and folder not in folders:
                    folder = os.path.dirname(folder)
                if folder and not header.startswith("longhaul/ops/kernels/cuda"):
                    jobs.append(pool.submit(compile_alone, header, folders[folder], directory))
    problems = [job.result() for job in jobs if job.result()]
    house.finish("headers", problems, len(jobs))


if __name__ == "__main__":
    main()
