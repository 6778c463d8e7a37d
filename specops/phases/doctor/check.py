"""One thing that was looked at."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

Status = Literal["ok", "warn", "fail"]

ANSWER_S = 5.0
"""How long a program or a server may take to answer."""


class Check(BaseModel):
    name: str
    status: Status
    found: str
    fix: str | None = None
