"""A week that a real Prometheus remembers, replayed by the command through the guard's own rules."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import yaml
from backfilled import Pool, remembering
from calling import specops

from specops.errors import Exit

DAY_S = 86400
BAD_S = 6 * 3600.0
MINUTE_S = 60


def test_of_a_remembered_week_the_bad_hours_are_the_only_fall_back(tmp_path: Path) -> None:
    week = Pool(
        "week",
        past_s=8 * DAY_S,
        every_s=MINUTE_S,
        then={"acceptance": 0.1},
        then_s=BAD_S,
        restarted_s_ago=3e5,
    )
    with remembering([week], tmp_path) as up:
        endpoint = {"engine": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
        rollout = {
            "rollout": "week",
            "pools": {"standard": endpoint, "speculative": endpoint},
            "addresses": {"prometheus": up.url},
            "monitor": {"scrape_interval_s": MINUTE_S},
            "guard": {"interval_s": 5 * MINUTE_S},  # of a minute there is one scrape, and so no increase
        }
        (tmp_path / "rollout.yaml").write_text(yaml.safe_dump(rollout))
        ends = time.time()
        began, ended = (datetime.fromtimestamp(at, UTC) for at in (ends - BAD_S, ends + DAY_S))
        incident = f"{began:%Y-%m-%dT%H:%M}/{ended:%Y-%m-%dT%H:%M}"
        asked = ("--last", "7", "--incident", incident, "--json", "--quiet")
        done = specops("guard", "simulate", str(tmp_path / "rollout.yaml"), *asked)
        rollout["guard"] = {"interval_s": MINUTE_S}
        (tmp_path / "rollout.yaml").write_text(yaml.safe_dump(rollout))
        refused = specops("guard", "simulate", str(tmp_path / "rollout.yaml"), *asked)
    assert done.returncode == Exit.YES, done.stdout + done.stderr
    assert refused.returncode == Exit.USAGE
    assert (
        "guard.interval_s 60 is shorter than two scrapes, which are 60 s apart"
        in json.loads(refused.stdout)["error"]
    )
    told = json.loads(done.stdout)
    assert told["evaluations"] > 2000
    first = told["fallbacks"][0]
    assert all(fallback["rightly"] == "yes" for fallback in told["fallbacks"]), told["fallbacks"]
    assert "acceptance 0.1" in first["why"]
    # The window of 5 minutes, and three evaluations; all days before it were healthy.
    assert 0 < first["ts"] - (ends - BAD_S) < 30 * MINUTE_S
