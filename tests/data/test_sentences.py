"""Documents are cut into distinct sentences."""

from __future__ import annotations

from jdistill.data.text.sentences import split_sentences


def test_documents_are_cut_into_distinct_sentences() -> None:
    found = split_sentences(["It rains. It pours! Does it?", "It rains. \n\n Yes.", ""])
    assert found == ["It rains.", "It pours!", "Does it?", "Yes."]
