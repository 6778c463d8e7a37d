"""The pages of `report`: the essentials of one, and how to have it made by itself."""

from __future__ import annotations

from specops.phases.report.delivery import ReportFiles, Scheduled
from specops.phases.report.report import Report
from specops.render.figures import aligned


def page(written: ReportFiles, report: Report) -> list[str]:
    """The page's lines. Every figure on it is in the JSON."""
    made = written.document
    lines = [f"report · {report.rollout} · {made.subtitle}"]
    lines += aligned([[f"  {tile.label.lower()}", tile.value, tile.note] for tile in made.tiles])
    lines += [f"  missing  {one.what}: {one.why}" for one in report.missing]
    for step in made.steps:
        lines += [f"  to do: {step.action}", f"    {step.command}"]
    lines.append(" ".join([f"{made.verdict}.", made.headline, *made.summary]))
    lines.append(f"written: {written.html}, beside it .md and .json")
    return lines


def scheduled(made: Scheduled) -> list[str]:
    service = next(name for name in made.names if name.endswith(".service"))
    timer = next(name for name in made.names if name.endswith(".timer"))
    return [
        f"schedule · {made.folder} · {made.calendar}",
        f"  cron     install -m 644 {made.folder}/{made.cron_name} /etc/cron.d/",
        f"  systemd  install -m 644 {made.folder}/{service} {made.folder}/{timer} /etc/systemd/system/"
        f" && systemctl daemon-reload && systemctl enable --now {timer}",
        "One of the two. Nothing was installed.",
    ]
