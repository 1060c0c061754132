"""Items, named tuples and enumerations on the wire: by class and field, made without their constructors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, Flag
from functools import lru_cache
from typing import Any, Final, NamedTuple

from itemadapter import ItemAdapter

from crawler.errors import WireError

_ABSENT: Final = object()


class ClassForm(NamedTuple):
    """How the values of some classes travel: which classes, value to parts, class and parts to value."""

    code: int
    fits: Callable[[type], bool]
    parts: Callable[[Any], Any]
    build: Callable[[Any, Any], object]


def class_path(cls: type) -> str | None:
    """Name under which `loaded_class` finds the class; None if it cannot, as for one made in a function."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    return path if _look_up(path) is cls else None


def loaded_class(path: str) -> type:
    """Class of `module:qualname`, only if this process has imported it already; else WireError."""
    found = _look_up(path)
    if not isinstance(found, type):
        raise WireError(f"got class {path!r}, which is not imported here; import its module in the spider's")
    return found


@lru_cache(maxsize=1024)
def form_of(cls: type) -> ClassForm | None:
    """How values of a class travel; None if they cannot, or if another process could not find the class."""
    if class_path(cls) is None:
        return None
    return next((form for form in CLASS_FORMS if form.fits(cls)), None)


def build(code: int, path: str, parts: Any) -> object:
    """A value from what the wire holds; raises WireError unless the class is loaded and of that kind."""
    cls = loaded_class(path)
    form = form_of(cls)
    if form is None or form.code != code:
        raise WireError(f"got class {path!r}, which is no item here; only items travel between workers")
    return form.build(cls, parts)


def is_item(cls: type) -> bool:
    """Whether it is an item class: dicts travel as dicts, and a class with `__del__` does not travel."""
    return not issubclass(cls, dict) and not hasattr(cls, "__del__") and ItemAdapter.is_item_class(cls)


def _look_up(path: str) -> object:
    module, _, names = path.partition(":")
    found: object = sys.modules.get(module)
    for name in names.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return found


def _build_named_tuple(cls: Any, parts: list[Any]) -> object:
    if len(parts) != len(cls._fields):
        raise WireError(f"got {len(parts)} fields for {cls!r}, which has {len(cls._fields)}; deploy one version")
    return tuple.__new__(cls, parts)


def _build_scrapy_item(cls: Any, parts: dict[str, Any]) -> object:
    item = cls()
    item.update(parts)
    return item


def _pydantic_base(cls: type) -> Any:
    bases = (getattr(sys.modules.get(name), "BaseModel", None) for name in ("pydantic", "pydantic.v1"))
    return next((base for base in bases if base is not None and issubclass(cls, base)), None)


def _build_pydantic(cls: Any, parts: dict[str, Any]) -> object:
    model = cls.__new__(cls)
    _pydantic_base(cls).__setstate__(model, parts)
    return model


def _field_names(cls: Any) -> Sequence[str] | None:
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    attributes = getattr(cls, "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def _field_values(value: object) -> dict[str, object]:
    found = {name: getattr(value, name, _ABSENT) for name in _field_names(type(value)) or ()}
    return {name: field for name, field in found.items() if field is not _ABSENT}


def _build_object(cls: type, parts: dict[str, Any]) -> object:
    names = _field_names(cls) or ()
    value: object = object.__new__(cls)
    for name, field in parts.items():
        if name not in names:
            raise WireError(f"got field {name!r} for {cls!r}, which has {', '.join(names)}; deploy one version")
        object.__setattr__(value, name, field)
    return value


CLASS_FORMS: Final = (
    ClassForm(
        32,
        lambda c: issubclass(c, Enum) and not issubclass(c, Flag),
        lambda member: member.name,
        lambda cls, name: cls.__members__[name],
    ),
    ClassForm(33, lambda c: issubclass(c, tuple) and hasattr(c, "_fields"), list, _build_named_tuple),
    ClassForm(
        34,
        lambda c: is_item(c) and issubclass(c, Mapping) and hasattr(c, "fields"),
        dict,
        _build_scrapy_item,
    ),
    ClassForm(
        35,
        lambda c: is_item(c) and _pydantic_base(c) is not None,
        lambda model: model.__getstate__(),
        _build_pydantic,
    ),
    ClassForm(
        36,
        lambda c: is_item(c) and vars(object)["__new__"] is c.__new__ and _field_names(c) is not None,
        _field_values,
        _build_object,
    ),
)
