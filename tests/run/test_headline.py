"""What a run says of its results when it ends."""

from __future__ import annotations

from jdistill.run.headline import headline_lines


def test_dev_pairs_and_searches_are_said_beside_whatever_else_was_measured() -> None:
    results = {
        "scored_pairs": 68.0,
        "teacher_scored_pairs": 80.0,
        "retrieval": {"ours": {"ndcg@10": 0.61234, "recall@100": 0.9}, "theirs": {"mrr@10": 0.5}},
        "teacher_retrieval": {"ours": {"ndcg@10": 0.64}},
        "asymmetric_retrieval": {"ours": {"ndcg@10": 0.62}},
        "bm25_retrieval": {"ours": {"ndcg@10": 0.28}, "theirs": {"ndcg@10": 0.3}},
    }
    assert headline_lines(results, "teacher") == [
        "dev pairs, Spearman 68.00 of the teacher's 80.00",
        "ours, nDCG@10: the student's 0.6123, the teacher's 0.6400, the student's in the teacher's index 0.6200, BM25's 0.2800",
    ]
    by = results | {"searched_by": {"index": "IVF4,Flat", "effort": "nprobe=2", "rescored": 50}}
    assert headline_lines(by, "teacher")[1].startswith(
        "ours, vectors in an index IVF4,Flat (nprobe=2), 50 documents ranked anew by the module, nDCG@10: the student's 0.6123, "
    )
    assert headline_lines({"scored_pairs": 68.0}, "start") == ["dev pairs, Spearman 68.00"]
    assert headline_lines({}, "teacher") == []
    assert headline_lines({"warning": "all alike"}, "teacher") == ["WARNING: all alike"]
