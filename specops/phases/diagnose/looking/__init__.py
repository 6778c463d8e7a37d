"""Where observations come from. Each gives a part of `Observations`, or a sentence that says why not."""
