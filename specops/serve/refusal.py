"""A request that is not answered, in the shape that OpenAI clients read."""

from __future__ import annotations

from typing import Any

_TYPES = {
    429: "rate_limit_error",
    500: "internal_error",
    503: "service_unavailable",
}


class Refusal(Exception):
    """Why a request gets no answer: an HTTP status and OpenAI's {error: {message, type, param, code}}."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }


FAULT = Refusal(500, "a fault in the server; its log has the details")
"""For an error that nobody foresaw: its text may hold what clients should not see."""
