"""Draft heads: small networks that read the target's features, one file a form, and their registry.

A form is its file here, which loads it, computes it and grows trees from it, and its entry in HEADS.
"""

from __future__ import annotations

from specops.engine.drafters.grower import DraftHead
from specops.engine.heads.eagle import EagleHead
from specops.engine.heads.medusa import Medusa
from specops.engine.heads.recurrent import Recurrent

HEADS: tuple[type[DraftHead], ...] = (EagleHead, Recurrent, Medusa)
"""The registry: a form an entry. A folder is of the first of which it has a mark."""
