"""The process that tokenises for another: texts in, token ids out, until there are no more. It imports the tokenizers library and little else.

Each request is a line of JSON: first the tokenizer, then lists of texts. Each is answered by the count of its ids and of its texts, int64, and then
the ids of all texts in a row and the number of each one's, int32.
"""

from __future__ import annotations

import json
import sys
from array import array
from typing import IO

from tokenizers import Tokenizer

ENCODED_AT_ONCE = 4096  # texts whose encodings are in memory at once


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answers requests until they end."""
    tokenizer = Tokenizer.from_str(json.loads(requests.readline()))
    for request in requests:
        texts = json.loads(request)
        ids, lengths = array("i"), array("i")
        for start in range(0, len(texts), ENCODED_AT_ONCE):
            for encoding in tokenizer.encode_batch_fast(texts[start : start + ENCODED_AT_ONCE]):
                ids.extend(encoding.ids)
                lengths.append(len(encoding))
        for numbers in (array("q", [len(ids), len(lengths)]), ids, lengths):
            replies.write(numbers.tobytes())
        replies.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
