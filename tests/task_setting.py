"""A folder of tasks as SentEval lays them out."""

from __future__ import annotations

from pathlib import Path


def senteval(folder: Path) -> Path:
    def write(name: str, lines: list[str], encoding: str = "utf-8") -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n", encoding=encoding)

    for split, count in (("train", 8), ("dev", 4), ("test", 6)):
        write(f"SST/binary/sentiment-{split}", [f"{split} film {i} \t{i % 2}" for i in range(count)])
    for split, count in (("train", 20), ("test", 6)):
        rows = [f"{i % 2}\t{i}\t{i}\tone {i}\tother {i}" for i in range(count)]
        write(f"MRPC/msr_paraphrase_{split}.txt", ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows])
    kinds = ["ABBR:exp", "DESC:def", "ENTY:food", "HUM:ind", "LOC:city", "NUM:date"]
    write("TREC/train_5500.label", [f"{kinds[i % 6]} Who is caf\xe9 {i} ?" for i in range(60)], "latin-1")
    write("TREC/TREC_10.label", [f"{kinds[i % 6]} What {i} ?" for i in range(6)], "latin-1")
    for sub, files in (("MR", ("rt-polarity.neg", "rt-polarity.pos")), ("CR", ("custrev.neg", "custrev.pos"))):
        for file in files:
            write(f"{sub}/{file}", [f"{file} {i}" for i in range(20)], "latin-1")
    return folder
