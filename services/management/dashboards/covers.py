"""Pictures that a dashboard can have on its tile without somebody uploading one."""

import msgspec

from libs.common.errors import InvalidInput

PRESET, UPLOADED = "DEFAULT_IMAGE", "RESOURCE"
_STEP = 10_000
_NAMES = ("Purple", "Blue", "Green", "Yellow", "City", "Building", "Field", "Plant")
"""Consoles preselect the one that is called Purple."""


class Cover(msgspec.Struct, frozen=True):
    """The picture of a dashboard: a preset, or an uploaded resource by its URL."""

    type: str
    data: str


class PresetCover(msgspec.Struct):
    """A preset; `data` is its path."""

    id: str
    name: str
    type: str
    data: str
    ordered: int


PRESETS = [
    PresetCover(
        id=str(at),
        name=name,
        type=PRESET,
        data=f"public/cover-{name.lower()}.svg",
        ordered=at * _STEP,
    )
    for at, name in enumerate(_NAMES, 1)
]
_PATHS = frozenset(preset.data for preset in PRESETS)


def cover_of(kind: str | None, data: str | None) -> Cover | None:
    """The cover that somebody chose, None for none; raise `InvalidInput`."""
    if kind is None and not data:
        return None
    if kind is None:
        raise InvalidInput("is required with cover_data", field="cover_type")
    if not data:
        raise InvalidInput("is required with cover_type", field="cover_data")
    if kind == PRESET and data not in _PATHS:
        raise InvalidInput(
            "is none of /dashboard/covers",
            field="cover_data",
            code="dashboard_preset_cover_not_exist",
        )
    return Cover(kind, data)
