"""metrics.jsonl goes on where the thread that writes TensorBoard events has ended: nobody waits for it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from jdistill.train.metrics import MetricsWriter


def test_a_write_of_events_that_fails_ends_the_events_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = MetricsWriter(tmp_path)
    thread = writer.events.file_writer.event_writer._worker
    monkeypatch.setattr("threading.excepthook", lambda _: None)  # else the thread's traceback is a warning of the test

    stalls = threading.Event()

    def full(*_: object) -> None:
        stalls.wait(20)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(thread._record_writer, "write_event", full)
    with caplog.at_level("WARNING", logger="jdistill"):
        for step in range(
            1, 40
        ):  # while a slow disk holds the thread: more values wait than tensorboardX lets by itself
            writer.write(step, {"loss": 2.0})
        stalls.set()
        thread.join(20)
        assert not thread.is_alive()
        for step in range(40, 60):
            writer.write(step, {"loss": 1.0})
    writer.close()
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == list(
        range(1, 60)
    )
    assert caplog.text.count("events of") == 1 and "metrics.jsonl goes on" in caplog.text
