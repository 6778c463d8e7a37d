"""A group of commands of which one is meant where none is named."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class FirstUnlessNamed(TyperGroup):
    """`report ROLLOUT` is `report make ROLLOUT`, where `make` is the first of its commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)
