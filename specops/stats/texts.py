from collections.abc import Mapping

SWAPS = 199
def compare_samples(standard: Mapping[str, list[str]], challenger: Mapping[str, list[str]], *, seed: int, swaps: int = SWAPS) -> float | None:
    return 1.0
