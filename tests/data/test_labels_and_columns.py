"""Tables as spreadsheets and joins leave them: a blank behind a label, two columns of one name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jdistill.core.errors import UserError
from jdistill.data.sets.tasks import read_task
from jdistill.data.sets.triplets import read_triplets
from jdistill.data.text.sources import read_texts


def test_a_blank_around_a_label_makes_no_class_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na\tpos\nb\tneg\nc\tpos \nd\t -\n")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\ne\t neg\nf\tpos\n")
    task = read_task("mine", str(tmp_path))
    names = [task.labels[label] for label in task.train.labels]
    assert set(task.labels) == {"pos", "neg"} and names == ["pos", "neg", "pos"] and len(task.dev) == 2


def test_a_parquet_with_two_columns_of_the_name_is_refused(tmp_path: Path) -> None:
    """Of which one reader would take the first and another the last."""
    columns = {"query": "q", "positive": "first", "again": "second"}
    table = pa.table({name: [text] for name, text in columns.items()}).rename_columns(["query", "positive", "positive"])
    pq.write_table(table, tmp_path / "t.parquet")
    for read in (read_triplets, lambda path: read_texts(path, "positive")):
        with pytest.raises(UserError, match="t.parquet: 2 columns are called 'positive'; give each a name of its own"):
            read(str(tmp_path / "t.parquet"))
    assert read_texts(str(tmp_path / "t.parquet"), "query").texts[:] == ["q"]
