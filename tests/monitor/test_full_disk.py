"""A disk that takes no more: alarms reach the loop all the same, and what is said of the run is true."""

from __future__ import annotations

import json
import sys

from tests.support import cli, running

LOOP = """
import os, resource, sys
import numpy as np
import trimtab
from tests.support import make_batch

folder, back, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng, fired = np.random.default_rng(0), []
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
run = trimtab.open_run(folder)
for step in range(60):
    if step == 40:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    if step == back:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    run.observe(make_batch(rng, sequences=64, step=step, post_scale=0.05 * (1.5 if step > 41 else 1) ** max(0, step - 41)))
    nan = float("nan") if step == 45 else 1.0
    fired += [(step, alarm.rule) for alarm in run.flush(step, {"reward": 0.5 + 0.01 * rng.normal(), "grad_norm": nan})]
print(run.num_failures, fired, len(run.alarms), flush=True)
if how == "kill":
    os.kill(os.getpid(), 9)
if how == "close":
    run.close()
"""


def looped(folder, back, how):
    """The lines of a child on a full disk from step 40 to `back`, its stderr, and the diagnosis."""
    with running([sys.executable, "-c", LOOP, str(folder), str(back), how], 240) as child:
        out, err = child.communicate()
    failures, _, rest = out.partition(" ")
    return int(failures), rest, err, json.loads(cli("diagnose", folder, "--json").stdout)


def test_alarms_of_steps_that_cannot_be_written_reach_the_loop(tmp_path):
    """flush returned no alarm on a full disk: writing came before judging, and an error lost what was judged."""
    failures, fired, err, result = looped(tmp_path / "run", 1_000, "kill")
    assert "(45, 'nonfinite')" in fired
    assert "post_tool_tail_growth" in fired
    assert failures == 20  # one a step, not two
    assert err.count("CANNOT WRITE") == 1
    assert "could not flush" not in err
    assert result["verdict"] == "blind"


def test_a_disk_with_room_again_has_lost_no_alarm_and_names_the_last_error(tmp_path):
    """ "MONITOR FAILED 54 times, last: None": the errors were not written either."""
    failures, fired, _, result = looped(tmp_path / "run", 50, "close")
    rules = {alarm["rule"] for alarm in result["alarms"]}
    assert "nonfinite" in fired
    assert {"nonfinite", "post_tool_tail_growth"} <= rules
    assert not any("rows of alarms" in text for text in result["losses"])
    assert (result["num_failures"], failures) == (10, 10)
    assert result["last_failure"] == "OSError: [Errno 27] File too large"
    assert "MONITOR FAILED 10 times, last: OSError" in cli("diagnose", tmp_path / "run").stdout
