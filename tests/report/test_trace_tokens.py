"""Tokens of the page: the log-ratios of each format that has them, with text or ids, escaped like all else."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from tests.report.page import Page
from tests.report.test_trace_diagnosis import HOSTILE, run
from tests.traces.make import write_lines
from trimtab.errors import TraceError
from trimtab.report.traces.shown_episodes import shown_episodes
from trimtab.report.traces.token_colors import MAX_TOKENS
from trimtab.report.traces.trace_diagnosis import diagnose_traces
from trimtab.report.traces.trace_page import write_traces_html
from trimtab.traces.native.episode_writer import TraceWriter
from trimtab.traces.read import read_episodes

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
NAN = math.nan


def own(tmp_path, **fields):
    path = tmp_path / "own.jsonl"
    with TraceWriter(path) as log, log.episode("e", log_ratio_of="trainer / sampler") as episode:
        episode.message("user", "q")
        episode.message("assistant", "ab", **fields)
        episode.finish(reward=1.0)
    return path


def shown(path, decode=None):
    (episode,) = shown_episodes(diagnose_traces([path]), decode=decode)
    return episode


def test_ratios_of_the_own_format_are_shown_with_the_texts_of_tokens(tmp_path):
    episode = shown(
        own(tmp_path, token_ids=[1, 2, 3], log_ratios=[0.12345, NAN, -3.0], token_texts=["a", "b", "\n"])
    )
    assert episode["turns"][1]["tokens"] == {
        "text": ["a", "b", "\n"],
        "ratio": [0.123, None, -3.0],
        "more": 0,
        "named": True,
    }
    assert (episode["turns"][0]["tokens"], episode["worst"], episode["ratio_of"]) == (
        None,
        3.0,
        "trainer / sampler",
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"token_ids": [1], "log_ratios": [NAN]},
        {"token_ids": [1, 2], "log_ratios": [0.5]},
        {"token_ids": [1], "logprobs": [-1.0]},
    ],
)
def test_without_a_ratio_of_each_token_none_is_shown(tmp_path, fields):
    assert shown(own(tmp_path, **fields))["turns"][1]["tokens"] is None


def test_long_turns_are_cut_and_say_so(tmp_path):
    size = MAX_TOKENS + 5
    found = shown(own(tmp_path, token_ids=[7] * size, log_ratios=[0.0] * size))["turns"][1]["tokens"]
    assert (len(found["text"]), len(found["ratio"]), found["more"], found["named"]) == (
        MAX_TOKENS,
        MAX_TOKENS,
        5,
        False,
    )


def prime(**fields):
    return {"schema_version": 1, "step": 1, "rank": 0, "token_ids": [5, 6, 7], "loss_mask": [False, True, True],
            "inference_logprobs": [0.0, -1.0, -2.0], "trainer_logprobs": [-9.0, -1.5, -1.0], "advantages": [0, 1, 1], **fields}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [({}, [NAN, -0.5, 1.0]), ({"log_importance_ratio": [4.0, 0.25, None]}, [NAN, 0.25, NAN]), ({"loss_mask": None}, [-9.0, -0.5, 1.0]),
     ({"trainer_logprobs": None}, None)],
)  # fmt: skip
def test_prime_rl_s_ratios_are_its_own_or_the_difference_where_it_trains(tmp_path, fields, wanted):
    (episode,), _ = read_episodes([write_lines(tmp_path / "rank_0.jsonl", [prime(**fields)])])
    found = episode.turns[0].log_ratios
    assert found == (None if wanted is None else pytest.approx(wanted, nan_ok=True))
    assert episode.log_ratio_of == (None if wanted is None else "trainer / sampler")


def tokenizer(tmp_path):
    made = Tokenizer(BPE(vocab={"a": 0, "b": 1, "Ġ": 2, "<": 3}, merges=[]))
    made.pre_tokenizer, made.decoder = ByteLevel(add_prefix_space=False), Decoder()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_tokenizer_gives_ids_their_text_and_a_bad_one_is_told_before_the_logs_are_read(tmp_path):
    path = own(tmp_path, token_ids=[0, 2, 3, 99], log_ratios=[0.1, 0.2, 0.3, 0.4])
    run("diagnose", path, "--html", tmp_path / "o.html", "--tokenizer", tokenizer(tmp_path))
    page = (tmp_path / "o.html").read_text()
    payload = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.S)[1])
    assert payload["episodes"][0]["turns"][1]["tokens"]["text"] == ["a", " ", "<", "99"]
    (tmp_path / "bad").mkdir()
    with pytest.raises(TraceError, match=r"bad.tokenizer.json is not a tokenizer.json"):
        run("diagnose", "nowhere.jsonl", "--html", tmp_path / "p.html", "--tokenizer", tmp_path / "bad")
    with pytest.raises(TraceError, match=r"--tokenizer .* give --html PATH too"):
        run("diagnose", path, "--tokenizer", tmp_path)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_colours_tokens_and_runs_none(tmp_path):
    path = own(
        tmp_path,
        token_ids=[1, 2, 3, 4],
        log_ratios=[-2.5, 0.6, 0.01, NAN],
        token_texts=[HOSTILE, "x", "y", "z"],
    )
    output = write_traces_html(diagnose_traces([path]), tmp_path / "page.html")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--enable-logging=stderr",
               f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", output.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    page = Page(done.stdout)
    classes = [value for name, value in page.attributes if name == "class" and value.startswith("tok ")]
    assert classes[-4:] == ["tok less4", "tok more2", "tok more0", "tok "]
    assert not set(page.tags) & {"img", "iframe", "object", "link"}


def test_the_largest_ratios_are_on_the_page_and_among_the_sizes(tmp_path):
    rows = [prime(log_importance_ratio=[0.0, 0.001 * i, -9.0 if i == 1_234 else 0.0]) for i in range(1_500)]
    path = write_lines(tmp_path / "rank_0.jsonl", rows)
    episodes = shown_episodes(diagnose_traces([path]))
    assert [e["worst"] for e in episodes[:3]] == [9.0, 1.5, 1.5]
    assert episodes[0]["source"].endswith(":1235")
    _, text = run("diagnose", path, "--verbose")
    row = next(line for line in text.splitlines() if line.startswith("  largest |log-ratio|"))
    assert row.split()[2:4] == ["1,500", "0.755"]
