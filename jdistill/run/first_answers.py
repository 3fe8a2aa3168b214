"""A look at what the teacher answers, before a run asks it for all."""

from __future__ import annotations

from collections.abc import Sequence

from jdistill.evals.collapse import COLLAPSE_SAMPLE, check_tokens
from jdistill.feeds.feed import Feed
from jdistill.feeds.shared import Shared
from jdistill.run import preflight


def check_answers(shared: Shared, feeds: Sequence[Feed]) -> None:
    """Looks at the teacher's answers to a few texts, all of which a run asks of it anyway. Raises UserError where they are all alike."""
    learnt = any(feed.learns_from_teacher for feed in feeds)
    if shared.corpus.train if learnt else shared.corpus.held_out:
        texts, vectors = shared.embeddings.first(COLLAPSE_SAMPLE, held_out=not learnt)
        preflight.check_teacher(shared.teacher, shared.start, texts, vectors)
        check_tokens(shared.start, shared.corpus.translations(COLLAPSE_SAMPLE), "the student, of the translations")
