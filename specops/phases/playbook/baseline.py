"""The standard pool, measured."""

from __future__ import annotations

from specops import results
from specops.launch.pools import serving
from specops.load.settings import OF_THE_RUN
from specops.phases import measurement
from specops.phases.baseline import measure
from specops.phases.inputs import ADDED, changed, inputs_of, settings_of
from specops.phases.playbook.keeping import keeping, unchanged
from specops.phases.playbook.pools import check_servers
from specops.phases.playbook.step import Given, Step


def run(at: Given) -> Step:
    pool, path, progress = at.rollout.pools.standard, at.path("baseline"), at.progress
    settings = settings_of(at.rollout, pool)
    inputs = inputs_of(settings, pool)
    previous = measurement.read(path) if path.exists() and not at.fresh else None
    if previous is not None:
        asked = settings.model_dump(mode="json")
        whole = all(previous.settings.get(name) == asked[name] for name in OF_THE_RUN)
        if changed(previous, inputs) is None and previous.verdict == "yes" and whole:
            return Step("baseline", path, previous, reused=True)
    previous = unchanged("baseline", previous, inputs, progress)
    if previous is not None:  # partial, failed, or asked for more: `measure` keeps the cells that are whole
        known = {name: sha for name, sha in previous.inputs.items() if name not in ADDED}
        previous = previous.model_copy(update={"inputs": known})
    check_servers(at)
    log = at.logs / "baseline.log"
    with keeping("baseline", path, previous, inputs, progress) as keep:
        with serving(pool, "standard", model=at.rollout.rollout, log=log, progress=progress) as server:
            result = measure(settings.at(server.base_url, server.model), progress, previous, keep)
        keep(result)  # now that its server is known to have lived to the end
    if result.verdict == "no" and log.exists():
        progress.note(f"baseline: the server's log is {log}")
    return Step("baseline", path, results.read(path))
