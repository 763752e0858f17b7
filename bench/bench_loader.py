"""How fast training data is read: makes a token store and a save_to_disk directory of the
same random ids, then runs bench_loader on both (build it with: ninja -C build bench_loader)."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

import numpy
import pyarrow as pa
import pyarrow.parquet as pq

SOURCE = pathlib.Path(__file__).resolve().parents[1]


def make_sources(folder, tokens, seq_len, binaries):
    generator = numpy.random.default_rng(1)
    ids = generator.integers(0, 60_000, tokens // seq_len * seq_len, dtype=numpy.int32)
    rows = len(ids) // seq_len
    offsets = numpy.arange(0, len(ids) + 1, seq_len, dtype=numpy.int32)
    table = pa.table({"input_ids": pa.ListArray.from_arrays(offsets, ids)})
    pq.write_table(table, folder / "ids.parquet", row_group_size=2000)
    for name, vocabulary in (("store", "60000"), ("wide", "128256")):
        subprocess.run([binaries / "longhaul", "data", "build", folder / "ids.parquet", "--field",
                        "input_ids", "--vocab-size", vocabulary, "--out", folder / name],
                       check=True, stdout=subprocess.DEVNULL)
    saved = folder / "saved"
    saved.mkdir()
    with pa.ipc.new_stream(str(saved / "data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    (saved / "state.json").write_text(json.dumps(
        {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "bench"}))
    (saved / "dataset_info.json").write_text("{}")
    print(f"{rows:,} rows of {seq_len}")
    return {"token store": folder / "store", "token store, 3 bytes": folder / "wide",
            "save_to_disk": saved}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--tokens", type=int, default=64_000_000)
    parser.add_argument("--seq-len", type=int, default=8192)
    parser.add_argument("--global-size", type=int, default=64, help="sequences per step")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        sources = make_sources(pathlib.Path(folder), options.tokens, options.seq_len,
                               options.build / "bin")
        print("| source | M tok/s | without prefetch | open ms | first batch ms | "
              "at step 1,000,001 ms |\n|---|---|---|---|---|---|")
        for _ in range(options.rounds):
            for name, path in sources.items():
                result = json.loads(subprocess.run(
                    [options.build / "bench" / "bench_loader", path, str(options.seq_len),
                     str(options.global_size), str(options.seconds)],
                    check=True, capture_output=True, text=True).stdout)
                print(f"| {name} | {result['tokens_per_s'] / 1e6:.0f} "
                      f"| {result['tokens_per_s_without_prefetch'] / 1e6:.0f} "
                      f"| {result['open_ms']:.1f} | {result['first_ms']:.1f} "
                      f"| {result['far_ms']:.1f} |")


if __name__ == "__main__":
    main()
