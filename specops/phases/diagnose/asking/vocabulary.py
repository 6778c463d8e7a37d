"""Do target and draft mean the same tokens? The playbook's fourth symptom."""

from __future__ import annotations

from specops.phases.diagnose.finding import Asks, Evidence, Finding
from specops.phases.diagnose.observations import Observations

VOCABULARY = Asks("vocabulary-mismatch", "vocabulary")
SAME_FAMILY = "a draft of the target's family, with its tokenizer: specops verify-draft TARGET DRAFT"


def vocabulary(seen: Observations) -> Finding:
    """By what a server's log says, else by the pair's files."""
    logged, drafts = seen.logged, seen.drafts
    if logged is not None and logged.lines:
        return VOCABULARY.cause(
            f"a server refused the pair: {logged.lines[0]}",
            *(Evidence(what="a server's log", value=line, source=logged.source) for line in logged.lines),
            cause="the draft is of another family of models than the target: its vocabulary is another",
            fix=f"{SAME_FAMILY}; or, from vLLM 0.25, use_heterogeneous_vocab",
        )
    if drafts is None:
        return VOCABULARY.unknown(
            f"whether their tokens agree is not known: {seen.why_not('drafts')}",
            show="specops run ROLLOUT --only drafts",
        )
    evidence = tuple(Evidence(what="verify-draft", value=one, source=drafts.source) for one in drafts.wrong)
    if drafts.verdict == "incompatible":
        cause = "ids mean other text to the draft than to the target: next to none of its tokens are accepted"
        return VOCABULARY.cause(drafts.reason, *evidence, cause=cause, fix=SAME_FAMILY)
    if drafts.verdict == "degraded":
        cause = "the draft was taught text cut up in another way: fewer of its tokens are accepted"
        return VOCABULARY.contributing(drafts.reason, *evidence, cause=cause, fix=SAME_FAMILY)
    return VOCABULARY.ruled_out(f"{drafts.reason} ({drafts.source})", *evidence)
