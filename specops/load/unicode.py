"""Text that came as JSON escapes may hold half a surrogate pair, which no file and no tokenizer takes."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """`text` with lone surrogates replaced, and pairs joined that two chunks had torn apart."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
