"""Documents are cut into distinct sentences."""

from __future__ import annotations

from jdistill.data.text.sentences import sentences_of


def test_documents_are_cut_into_distinct_sentences() -> None:
    found = [
        text
        for text in dict.fromkeys(sentences_of(["It rains. It pours! Does it?", "It rains. \n\n Yes.", ""]))
        if text
    ]
    assert found == ["It rains.", "It pours!", "Does it?", "Yes."]
