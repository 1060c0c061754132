"""Finds the backend that an address names. Ours are the files of the package ``pipelines`` of this project."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import crawler
from crawler.errors import ConfigError
from crawler.storage.contract import Storage

ALIAS = "trawlnet_pipelines"
"""Our package under a name that a project's own top-level ``pipelines`` cannot take; it is installed under it too."""

SCHEMES = {"sqlite": "sql", "postgresql": "sql", "jsonlines": "jsonlines"}
_SCHEME = re.compile(r"^([a-z][a-z0-9]*)(\+[a-z0-9]+)?:")
_CLASS = re.compile(r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$")


def open_storage(target: str, *, writer: str = "reader") -> Storage:
    """The backend of an address; nothing is opened yet.

    Args:
        target: such as ``sqlite:///items.db``, ``jsonlines:items``, or the path of a class that takes (target, writer).
        writer: name of the process that writes, for backends that keep a file for each.

    Raises:
        ConfigError: the address names no backend; never shows a password.
    """
    scheme = _SCHEME.match(target)
    if scheme and scheme.group(1) in SCHEMES:
        module = _ours(SCHEMES[scheme.group(1)])
        return cast("Storage", module.storage(target, writer))
    if _CLASS.match(target):
        return cast("Storage", _class(target)(target, writer))
    shown = scheme.group(1) + ":…" if scheme else target.rsplit("@", maxsplit=1)[-1]
    raise ConfigError(
        f"CRAWLER_STORAGE is {shown!r}, which names no backend; known are {', '.join(sorted(SCHEMES))} "
        "(as in sqlite:///items.db or jsonlines:items) and paths of classes"
    )


def _class(path: str) -> Any:
    module_name, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"CRAWLER_STORAGE names the class {path!r}, which cannot be imported ({error}); correct the path"
        ) from error


def _ours(name: str) -> ModuleType:
    if importlib.util.find_spec(ALIAS) is None:
        folder = Path(crawler.__file__).parent.parent / "pipelines"
        spec = importlib.util.spec_from_file_location(
            ALIAS, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ConfigError(
                f"the storage backends are not beside the package crawler, in {folder}; install trawlnet anew"
            )
        package = importlib.util.module_from_spec(spec)
        sys.modules[ALIAS] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{ALIAS}.{name}")
