"""An exported folder put on the Hugging Face hub by huggingface_hub: as the user asks, private unless the user says otherwise."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

from jdistill.core.errors import UserError, first_line
from jdistill.core.files import some_of
from jdistill.core.progress import log
from jdistill.data.text.hub import hub_answers

# Of a repository, what loaders look for beside, or before, the weights of an export without these forms.
LOADED_BY_THEIR_NAMES = (
    "onnx/*", "openvino/*", "gguf/*", "*.gguf", "torch_int8*/*", "adapter_config.json", "*.safetensors.index.json",
)  # fmt: skip


@dataclass(frozen=True)
class Push:
    """Where an export goes.

    Args:
      repository: OWNER/NAME.
      token: the user's, from where huggingface_hub looks for it.
      public: whether anybody may read a repository that this makes, and whether a public one is written to.
    """

    repository: str
    token: str
    public: bool


def plan_push(repository: str, public: bool) -> Push:
    """What --push asks for, checked as far as can be before an export begins.

    Raises: UserError for a name that is not OWNER/NAME, without a token, and where the hub is not to be asked.
    """
    try:
        validate_repo_id(repository)
        if repository.count("/") != 1:
            raise HFValidationError("it is not of the form OWNER/NAME")
    except HFValidationError as error:
        raise UserError(f"--push={repository}: the hub has no repository of such a name; {first_line(error)}") from None
    if constants.HF_HUB_OFFLINE:
        raise UserError(f"--push={repository}: HF_HUB_OFFLINE is set, so that nothing can be sent")
    if not (token := get_token()):
        raise UserError(
            f"--push={repository} needs a token of the hub that may write: hf auth login keeps one, or set HF_TOKEN"
        )
    return Push(repository, token, public)


def push_folder(push: Push, folder: Path) -> str:
    """Makes the repository, where there is none, and sends every file of the folder in one commit.

    Returns: the commit's URL. Raises: UserError where the hub cannot be reached or refuses, and for a public repository unless
    push.public; the folder stays as it is.
    """
    api = HfApi(token=push.token)
    retry = (
        f"the export stays in {folder}; hf upload {push.repository} {shlex.quote(str(folder))} --private sends it later"
    )
    if not hub_answers():
        raise UserError(f"--push={push.repository}: the hub at {api.endpoint} cannot be reached; {retry}")
    try:
        if (there := _repository(api, push.repository)) is None:
            api.create_repo(push.repository, private=not push.public)
        elif not (there.private or push.public):
            raise UserError(
                f"--push={push.repository} is public, where anybody would read the student; --push_public says that this is meant. "
                f"The export stays in {folder}"
            )
        sent = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        files = {file.rfilename for file in (there.siblings or [])} if there else set()
        commit = api.upload_folder(repo_id=push.repository, folder_path=folder, commit_message="Export by jdistill")
    except UserError:
        raise
    except Exception as error:  # of its HTTP library, which changed between its releases
        raise UserError(
            f"--push={push.repository}: the hub at {api.endpoint} did not take it ({type(error).__name__}: {' '.join(str(error).split())[:400]}); "
            f"{retry}"
        ) from error
    who = "anybody" if push.public and not (there and there.private) else "its owner alone"
    log.info("sent %d files to %s, which %s can read", len(sent), commit.commit_url, who)
    if stay := sorted(files - sent - {".gitattributes"}):
        log.info("%s held %s before, which stay", push.repository, some_of(stay))
    if old := [name for name in stay if any(fnmatch(name, pattern) for pattern in LOADED_BY_THEIR_NAMES)]:
        log.warning(
            "WARNING: of them %s are of another export, and loaders that look for such files take them: hf repos delete-files %s %s",
            some_of(old), push.repository, shlex.join(old),
        )  # fmt: skip
    return str(commit.commit_url)


def _repository(api: HfApi, name: str) -> Any:
    """What the hub says of a repository; None where there is none that the token may see."""
    try:
        return api.model_info(name)
    except RepositoryNotFoundError:
        return None
