"""Text that others are shown: URLs without what opens them, and letters that a terminal lacks by their numbers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from commands import ROOT

from jdistill.core.printable import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:word@host/a/b.jsonl", "https://host/a/b.jsonl"),
        ("https://b.s3.x/t.gz?X-Amz-Signature=abc&x=1", "https://b.s3.x/t.gz?…"),
        ("--config.text=s3://k:v@b/t?sig=1,s3://b/u@query --seed=1", "--config.text=s3://b/t?… --seed=1"),
        ("--config.text='https://h/a?sig=1' 'what is it?'", "--config.text='https://h/a?…' 'what is it?'"),
        ("s3://user:p@ss@host/x", "s3://host/x"),
        ("https://user:pa/ss@host/x http://host:8080/a@query", "https://host/x http://host:8080/a@query"),
        ("https://h/x?a='q'&sig=SECRET (no answer)", "https://h/x?… (no answer)"),
        ('{\n "text": "https://h/x?sig=1",\n "seed": 1}', '{\n "text": "https://h/x?…",\n "seed": 1}'),
        ("path/to@home/why?.txt st:owner/name@0123", "path/to@home/why?.txt st:owner/name@0123"),
        ("s3://bucket/a.txt@query*2", "s3://bucket/a.txt@query*2"),
    ],
)
def test_urls_keep_no_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_a_terminal_of_few_letters_ends_no_command() -> None:
    code = "from jdistill.core.progress import setup_logging; setup_logging(); print('caf\u00e9 \u6771\u4eac')"
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert told.stdout == b"caf\xe9 \\u6771\\u4eac\n"
