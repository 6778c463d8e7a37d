"""Complete commands for one rollout, which a page gives an operator as the next ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specops import results
from specops.config import Rollout, beside
from specops.errors import SpecopsError
from specops.phases.sweep.spec import endpoints_in
from specops.serving import Endpoint

FIRST_K = 5
"""The playbook's K to start from."""


@dataclass(frozen=True)
class Commands:
    """`file` is named as the operator named it, so that a command runs from the same directory."""

    rollout: Rollout
    file: Path
    folder: Path

    def of(self, words: str, *, fresh: bool = False) -> str:
        """`specops WORDS`. In `words` {rollout} stands for the rollout file with its run folder, {file} for
        the file alone and {folder} for the run folder."""
        filled = words.replace("{rollout}", self.place).replace("{file}", shlex.quote(str(self.file)))
        filled = filled.replace("{folder}", shlex.quote(str(self.folder)))
        return f"specops {filled}{' --fresh' if fresh else ''}"

    @property
    def place(self) -> str:
        """The rollout file, with its run folder where that is not beside it."""
        file = shlex.quote(str(self.file))
        beside_file = self.folder.resolve() == beside(self.file, self.rollout.rollout)
        return file if beside_file else f"{file} --out {shlex.quote(str(self.folder))}"

    @property
    def anywhere(self) -> Commands:
        """The same with absolute paths, for what is read in another directory: a chat, a journal."""
        return replace(self, file=self.file.resolve(), folder=self.folder.resolve())

    def sweep(self, *, fresh: bool = False) -> str:
        """The sweep; of pools that run already with the endpoints that it compares."""
        attach = "".join(f" --attach {shlex.quote(f'{k}={end}')}" for k, end in self._endpoints().items())
        return self.of(f"sweep {{rollout}}{attach}", fresh=fresh)

    def _endpoints(self) -> Mapping[int, str]:
        """URL#MODEL of each endpoint by its K: those of the earlier sweep, else of the rollout's two pools.
        Empty where specops starts the pools itself."""
        pool, standard = self.rollout.pools.speculative, self.rollout.pools.standard
        if pool.endpoint is None:
            return {}
        swept = self._swept()
        if swept:
            return swept
        if standard.endpoint is not None:
            base = _named(standard.endpoint)
        else:
            address = next(iter(self.rollout.addresses.standard), "127.0.0.1:8000")
            base = f"http://{address}/v1"
        return {0: base, self.observed_k() or FIRST_K: _named(pool.endpoint)}

    def observed_k(self) -> int | None:
        """The K of a speculative pool that runs already, as the comparison counted its positions."""
        from specops.phases.run_folder import Missing, RunFolder  # which reads walks, and those have commands

        comparison = RunFolder(self.folder).finished_comparison
        if isinstance(comparison, Missing):
            return None
        counts = (level.acceptance for level in comparison.part.arms.get("speculative", []))
        return max((len(count.per_position) for count in counts if count is not None), default=0) or None

    def _swept(self) -> dict[int, str]:
        try:
            settings: Mapping[str, Any] = results.read(self.folder / "sweep.json").settings["settings"]
            ends = endpoints_in(settings)  # of a sweep that was stopped as well: it is resumed with them
        except (SpecopsError, LookupError, TypeError, ValueError, AttributeError):
            return {}
        speculative = self.rollout.pools.speculative
        named = {k: _named(pool.endpoint) for k, pool in ends.items() if pool.endpoint is not None}
        return named if speculative in ends.values() else {}


def _named(endpoint: Endpoint) -> str:
    return f"{endpoint.base_url}#{endpoint.model}"
