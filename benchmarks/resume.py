"""What does a checkpoint's record cost, and how long do a check before a resume and a post-mortem take?

    python benchmarks/resume.py [--json] [--quick] [--mb 512] [--steps 1000]

One file of `--mb` megabytes stands for the weights, one of twice as much for the optimizer; both are written here, so they are in the page
cache as after a save. Figures: `hash_gb_per_s` (SHA-256 of the weights, one thread), `checkpoint_call_s` (what `run.checkpoint` holds
training up, median of five; hashes are computed in a thread), `resume_check_s` and `resume_check_gb_per_s` (the whole command, over the
bytes of the checkpoint), `post_mortem_s` (reading a run of `--steps` steps and composing its post-mortem: what a crash or SIGTERM takes
longer), `post_mortem_steps`, `post_mortem_bytes`. Wall seconds of a machine that may do other things.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402

import trimtab  # noqa: E402
from tests.support import make_batch  # noqa: E402
from trimtab.preflight.resume import resume_check  # noqa: E402
from trimtab.report.post_mortem import keep_post_mortem  # noqa: E402
from trimtab.report.run_view import load_view  # noqa: E402
from trimtab.runs.checkpoints.weight_hashes import sha256_of  # noqa: E402

MB = 2**20


def checkpoint(folder: Path, num_mb: int) -> Path:
    """A checkpoint of random bytes: one safetensors file, and an archive of stored records as torch.save writes it."""
    folder.mkdir(parents=True)
    block = np.random.default_rng(0).bytes(MB)
    header = json.dumps(
        {"w": {"dtype": "U8", "shape": [num_mb * MB], "data_offsets": [0, num_mb * MB]}}
    ).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(num_mb):
            file.write(block)
    with (
        zipfile.ZipFile(folder / "optimizer.pt", "w") as archive,
        archive.open("archive/data/0", "w", force_zip64=True) as record,
    ):
        for _ in range(2 * num_mb):
            record.write(block)
    for name in ("scheduler.pt", "rng_state.pth"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("archive/data.pkl", block[:1000])
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 1, "epoch": 0.1}))
    return folder


def checkpoints(home: Path, num_mb: int) -> dict[str, Any]:
    """Seconds of a checkpoint's record, and of the check before a resume."""
    folder = checkpoint(home / "checkpoint-1", num_mb)
    start = time.perf_counter()
    sha256_of(folder / "model.safetensors")
    hash_s = time.perf_counter() - start
    calls = []
    with trimtab.open_run(home / "run", post_mortem=False) as run:
        run.flush(1, {"reward": 0.5})
        for _ in range(5):
            start = time.perf_counter()
            run.checkpoint(1, folder, {"epoch": 0.1}, sampler={"step": 1})
            calls.append(time.perf_counter() - start)
    start = time.perf_counter()
    result = resume_check(home / "run", folder)
    check_s = time.perf_counter() - start
    if result["verdict"] != "go":
        raise SystemExit(f"the checkpoint is not a go: {result['headline']}")
    return {
        "hash_gb_per_s": num_mb * MB / 1e9 / hash_s,
        "checkpoint_call_s": statistics.median(calls),
        "resume_check_s": check_s,
        "resume_check_gb_per_s": 3 * num_mb * MB / 1e9 / check_s,
    }


def post_mortem_cost(home: Path, num_steps: int) -> dict[str, Any]:
    """Seconds from a crash to its record, of a run of so many steps."""
    rng, folder = np.random.default_rng(0), home / "crashed"
    try:
        with trimtab.open_run(folder, post_mortem=False) as run:
            for step in range(num_steps):
                run.observe(make_batch(rng, sequences=16, step=step))
                run.flush(step, {"reward": 0.5, "grad_norm": 1.0})
            raise MemoryError("planted")
    except MemoryError:
        pass
    start = time.perf_counter()
    record, _ = keep_post_mortem(load_view(folder), "reader")
    seconds = time.perf_counter() - start
    if record is None or record["ending"]["kind"] != "out of memory":
        raise SystemExit("the run that crashed has no post-mortem")
    return {
        "post_mortem_s": seconds, "post_mortem_steps": num_steps,
        "post_mortem_bytes": (folder / "postmortem.json").stat().st_size,
    }  # fmt: skip


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="64 MB and 60 steps")
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    num_mb, num_steps = (64, 60) if options.quick else (options.mb, options.steps)
    with tempfile.TemporaryDirectory() as home:
        figures = checkpoints(Path(home), num_mb) | post_mortem_cost(Path(home), num_steps)
    if options.json:
        print(json.dumps({"figures": figures}))
        return
    for name, value in figures.items():
        print(f"{name:24} {value:.4g}")


if __name__ == "__main__":
    main()
