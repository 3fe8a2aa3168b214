"""The browser's runtime of a search page: two npm packages, copied from the folder that npm filled or read from a CDN."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_json

RUNTIME_KEY = "--web_runtime"
RUNTIME_FOLDER = "runtime"  # of the page's folder
# What may stand in a Content-Security-Policy as it is; https, but for a server of one's own machine.
CDN_ADDRESS = re.compile(r"(https://[\w.-]+|http://(localhost|127\.0\.0\.1))(:\d+)?/([\w.@~-]+/)*")


@dataclass(frozen=True)
class WebPackage:
    """A package of npm's.

    Args:
      name: npm's.
      version: that the tests have run, and that is asked of a CDN.
      files: what the page calls a file -> its path in the package. They end in .js, which every static server calls JavaScript.
    """

    name: str
    version: str
    files: Mapping[str, str]


PACKAGES = (
    WebPackage(
        "onnxruntime-web",
        "1.30.0",
        {"ort.js": "dist/ort.wasm.bundle.min.mjs", "ort.wasm": "dist/ort-wasm-simd-threaded.wasm"},
    ),
    WebPackage("@huggingface/tokenizers", "0.2.0", {"tokenizers.js": "dist/tokenizers.min.mjs"}),
)
INSTALL = "npm install " + " ".join(f"{package.name}@{package.version}" for package in PACKAGES)


@dataclass(frozen=True)
class WebRuntime:
    """Where a page has its runtime from.

    Args:
      addresses: what the page calls a file -> its address, relative to the page or at a CDN.
      versions: package -> its version.
      copied: files of this machine -> their paths in the page's folder; empty for a CDN.
      elsewhere: addresses, other than the page's own, from which it may load.
    """

    addresses: Mapping[str, str]
    versions: Mapping[str, str]
    copied: Mapping[Path, str]
    elsewhere: tuple[str, ...] = ()

    def copy_into(self, folder: Path) -> None:
        """Copies what is copied into the page's folder, which holds its place for it."""
        for source, name in self.copied.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)


def web_runtime(place: str) -> WebRuntime:
    """The runtime in a folder `node_modules`, or in one that holds such a folder, or at a CDN.

    Args:
      place: the folder, or the address under which a CDN serves the packages of npm as NAME@VERSION/PATH.

    Raises: UserError for none, which says how to get one, for a package or a file of it that is missing, and for an address that is none.
    """
    if not place:
        raise UserError(
            f"--format=site needs the runtime of browsers, {RUNTIME_KEY}: run `{INSTALL}` in a folder and name its node_modules, "
            f"or name the address (https://…/) of a CDN that serves npm's packages"
        )
    return _at_cdn(place) if "://" in place else _in_folder(Path(os.path.expanduser(place)))


def _in_folder(folder: Path) -> WebRuntime:
    modules = folder / "node_modules" if (folder / "node_modules").is_dir() else folder
    addresses, versions, copied = {}, {}, {}
    for package in PACKAGES:
        source = modules / package.name
        if not (source / "package.json").is_file():
            raise UserError(
                f"{RUNTIME_KEY}={folder} holds no package {package.name}; run `{INSTALL}` in a folder and name its node_modules"
            )
        versions[package.name] = str(read_json(source / "package.json").get("version", ""))
        for name, path in package.files.items():
            if not (source / path).is_file():
                raise UserError(
                    f"{source} (version {versions[package.name]}) has no {path}; install the version that jdistill was tested with: {INSTALL}"
                )
            addresses[name] = f"{RUNTIME_FOLDER}/{name}"
            copied[source / path] = addresses[name]
        for licence in (source / "package.json", source / "LICENSE"):  # the first names it; not each has the second
            if licence.is_file():
                copied[licence] = f"{RUNTIME_FOLDER}/{package.name.replace('/', '-').lstrip('@')}-{licence.name}"
    return WebRuntime(addresses, versions, copied)


def _at_cdn(address: str) -> WebRuntime:
    address = address if address.endswith("/") else f"{address}/"
    if not CDN_ADDRESS.fullmatch(address):
        raise UserError(
            f"{RUNTIME_KEY}={address} is no address of a CDN: it begins with https:// and has neither ? nor #"
        )
    roots = {package.name: f"{address}{package.name}@{package.version}/" for package in PACKAGES}
    addresses = {name: roots[package.name] + path for package in PACKAGES for name, path in package.files.items()}
    return WebRuntime(addresses, {package.name: package.version for package in PACKAGES}, {}, tuple(roots.values()))
