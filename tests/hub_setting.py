"""A stand-in of the hub on this machine: as much of its HTTP API as takes a commit, large files by LFS, and gives files of commits."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from huggingface_hub import constants

LARGE = (".safetensors", ".onnx")  # sent by LFS, as the hub has it


@dataclass
class Hub:
    """What it was told.

    Args:
      url: where it listens.
      repositories: name -> "private" or "public".
      files: (repository, path) -> content, as committed.
      commits: repository -> commit -> path -> content, to be fetched; the newest last.
      objects: sha256 -> content, sent by LFS.
      requests: method and path of each, in their order.
      tokens: of the requests.
      refuses: whether it makes no repository.
    """

    url: str = ""
    repositories: dict[str, str] = field(default_factory=dict)
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    commits: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    refuses: bool = False

    def of(self, repository: str) -> dict[str, bytes]:
        """The files of a repository."""
        return {path: content for (name, path), content in self.files.items() if name == repository}

    def add_commit(self, repository: str, folder: Path) -> str:
        """Gives a repository a folder's files as its newest commit, whose hash is returned."""
        commit = hashlib.sha1(repr(sorted(contents(folder).items())).encode()).hexdigest()
        self.commits.setdefault(repository, {})[commit] = contents(folder)
        return commit


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder and below, by their paths in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def only_hub(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> Iterator[Hub]:
    """A hub that huggingface_hub, in this process, takes for the only one, with an empty cache and without a token."""
    with hub_here() as hub:
        for name, value in {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_TOKEN_PATH": str(scratch / "no-token"),
            "HF_HUB_CACHE": str(scratch / "hub-cache"),
        }.items():
            monkeypatch.setattr(constants, name, value)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield hub


@contextmanager
def hub_here() -> Iterator[Hub]:
    """A hub while the block runs."""
    hub = Hub()

    class Handler(_Handler):
        told = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    told: Hub

    def log_message(self, *_: Any) -> None:
        """Nothing on the tests' standard error."""

    def do_HEAD(self) -> None:
        self._file() if "/resolve/" in self.path else self._reply(200)

    def do_GET(self) -> None:
        self._begin()
        if "/resolve/" in self.path:
            return self._file()
        name, _, of_commit = (
            self.path.partition("/api/models/")[2].replace("/tree/", "/revision/").partition("/revision/")
        )
        if name in self.told.commits:
            commits, asked = self.told.commits[name], of_commit.partition("?")[0]
            if "/tree/" in self.path:
                rows = [
                    {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for path, content in commits[asked].items()
                ]
                return self._reply(200, rows)
            return self._reply(200, {"id": name, "modelId": name, "sha": list(commits)[-1], "tags": [], "siblings": []})
        if name not in self.told.repositories:
            return self._reply(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        siblings = [{"rfilename": path} for path in self.told.of(name)]
        private = self.told.repositories[name] == "private"
        self._reply(200, {"id": name, "modelId": name, "private": private, "tags": [], "siblings": siblings})

    def do_PUT(self) -> None:
        self.told.objects[self.path.rpartition("/")[2]] = self._begin()
        self._reply(200)

    def do_POST(self) -> None:
        content = self._begin()
        if self.path == "/api/repos/create":
            return self._create(json.loads(content))
        if self.path == "/api/validate-yaml":
            return self._reply(200, {"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            files = json.loads(content)["files"]
            modes = [(file["path"], "lfs" if file["path"].endswith(LARGE) else "regular") for file in files]
            rows = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes]
            return self._reply(200, {"files": rows})
        if self.path.endswith("/info/lfs/objects/batch"):
            rows = [
                row | {"actions": {"upload": {"href": f"{self.told.url}/objects/{row['oid']}", "header": {}}}}
                for row in json.loads(content)["objects"]
            ]
            return self._reply(200, {"transfer": "basic", "objects": rows})
        if "/commit/" in self.path:
            return self._commit(content)
        self._reply(404, {"error": self.path})

    def _file(self) -> None:
        name, _, rest = self.path.removeprefix("/").partition("/resolve/")
        commit, _, path = rest.partition("/")
        content = self.told.commits[name][commit][path]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        self._reply(200, content, headers)

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if self.told.refuses:
            return self._reply(403, {"error": f"You don't have the rights to create {name}"})
        visibility = asked.get("visibility") or ("private" if asked.get("private") else "public")  # before 1.0: private
        self.told.repositories[name] = visibility
        self._reply(200, {"url": f"{self.told.url}/{name}", "name": name})

    def _commit(self, content: bytes) -> None:
        name = self.path.partition("/api/models/")[2].partition("/commit/")[0]
        for line in content.splitlines():
            entry = json.loads(line)
            of = entry["value"]
            if entry["key"] == "file":
                self.told.files[name, of["path"]] = base64.b64decode(of["content"])
            elif entry["key"] == "lfsFile":
                self.told.files[name, of["path"]] = self.told.objects[of["oid"]]
        self._reply(
            200, {"success": True, "commitUrl": f"{self.told.url}/{name}/commit/{'0' * 40}", "commitOid": "0" * 40}
        )

    def _begin(self) -> bytes:
        """Notes the request and reads what it brings."""
        self.told.requests.append(f"{self.command} {self.path}")
        if token := self.headers.get("authorization"):
            self.told.tokens.add(token.removeprefix("Bearer "))
        if self.headers.get("transfer-encoding") == "chunked":
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _reply(self, status: int, content: Any = None, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
