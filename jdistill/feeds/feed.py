"""What a kind of training data is: an object that brings its batches, its dev score, what it saves and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.types import Tree
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.feeds.dev_score import encoder_score
from jdistill.feeds.shared import Shared
from jdistill.retrieval.index import TEACHER
from jdistill.train.dataset import Data
from jdistill.train.method import Method


class Kind(Protocol):
    """A kind of training data as a stage names it: what is known of it before anything is read."""

    @property
    def dev_keys(self) -> tuple[str, ...]:
        """Keys of the config, each of which brings a part of its checkpoints' dev score; without any of them there is none."""

    def reads_text(self, there_is: bool) -> bool:
        """Whether it reads the run's corpus.

        Args:
          there_is: whether the config names text, or the teacher brings its own.
        """

    def read(self, shared: Shared) -> Feed:
        """Reads the data.

        Args:
          shared: the run's config, teacher, start and text.

        Raises: UserError for what is not there or does not fit, before anything is trained.
        """


@dataclass(frozen=True)
class Feed:
    """Training data of one kind, read. A feed overrides what its kind has; `cfg` is always that of the stage.

    Args:
      shared: the run's config, teacher, start and text.
      learns_from_teacher: of the class, whether its batches hold the teacher's embeddings.
    """

    shared: Shared
    learns_from_teacher = False  # whether its batches hold the teacher's embeddings

    def begin(self, before: Feed | None) -> Feed:
        """This feed as its stage begins.

        Args:
          before: the feed of the stage before, as it ended; None: of the first stage.
        """
        return self

    def batches(self, cfg: ConfigDict, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
        """What a stage reads its data by.

        Args:
          student: reads the texts by its tokenizer, prompts and lengths.
          made_up: nobody is asked; answers are random or zero.

        Returns: the tokens that a student's start is fitted to, and the batches.
        """
        raise NotImplementedError

    def origins(self) -> dict[str, str]:
        """A fingerprint of whom it learns from, by the name that a message calls it; a resumed stage is refused another."""
        teacher = self.shared.teacher
        if not self.learns_from_teacher:
            return {}
        encoder = teacher.encoder
        prompts = sorted(encoder.prompts.items()) if encoder else []
        uncounted = ["not counted"] if encoder and prompts and not encoder.include_prompt else []
        return {"the teacher": digest(teacher.fingerprint, repr(prompts), *uncounted)}

    def own_texts(self, cfg: ConfigDict, student: Encoder) -> Sequence[tuple[Encoder, Sequence[str]]]:
        """The texts that it trains on beside the corpus, whose pieces a vocabulary that is cut to the text keeps.

        Args:
          student: the encoder that the student starts as.

        Returns: texts, each row with the encoder as it reads them (prompt and length).

        Raises: UserError of a kind that does not tell.
        """
        raise UserError(
            f"--config.student.vocabulary={cfg.student.vocabulary}: {type(self).__name__} does not tell which texts it reads (Feed.own_texts); "
            "leave the key empty"
        )

    def dev_score(self, cfg: ConfigDict, method: Method) -> Callable[[Tree], dict[str, float]]:
        """Parameters -> dev figures by name; "score" among them, higher is better, chooses the best checkpoint.

        All processes of a run call it, and what it returns, together. Without a "score" the last checkpoint is taken.
        """
        of_encoder = encoder_score(
            cfg, self.shared.corpus, self.shared.embeddings, by_agreement=self.learns_from_teacher
        )
        return lambda params: of_encoder(method.trained(params))

    def after(self, cfg: ConfigDict, method: Method, params: Tree, folder: Path) -> Feed:
        """This feed as its stage leaves it; saves in the stage's folder what is no part of the student.

        Args:
          params: the best that were trained, on the host.
          folder: of the stage.
        """
        return self

    def plan(self, cfg: ConfigDict) -> tuple[str, str] | None:
        """Of a dry run: whom it asks, and how long for, as a line's name and text; None: the teacher alone."""
        return None

    def ask_for_results(self, cfg: ConfigDict) -> None:
        """Asks for what `results` reads; all processes of a run call it together."""

    def index_texts(self) -> Sequence[str]:
        """The texts of the run's search index."""
        return self.shared.corpus.indexed(by_teacher=self.shared.cfg.index_by == TEACHER)

    def pair_scorer(self, cfg: ConfigDict, student: Encoder, params: Tree) -> PairScorer | None:
        """What scores pairs by more than the student's vectors; None where nothing does.

        Args:
          params: all that were trained.
        """
        return None

    def save(self, cfg: ConfigDict, student: Encoder, params: Tree, folder: Path) -> dict[str, float]:
        """Adds what was trained beside the student to its export.

        Args:
          params: all that were trained.
          folder: the export.

        Returns: checks by name, the max abs difference from Flax.
        """
        return {}

    def results(self, cfg: ConfigDict, student: Encoder, params: Tree) -> dict[str, Any]:
        """Figures of its own, by key, for results.json.

        Args:
          student: as it was exported.
          params: all that were trained.
        """
        return {}
