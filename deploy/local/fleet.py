"""The devices of `thingway simulate`: created once, remembered in `DIR/simulated.json`."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from deploy.platform.bootstrap import demo_product
from deploy.platform.errors import LauncherError
from deploy.platform.files import write_private
from deploy.platform.openapi import OpenApi

FILE_NAME = "simulated.json"
_AT_ONCE = 8
_SAVE_EVERY = 100


async def provide(
    api: OpenApi, directory: Path, count: int, told: Callable[[int], None]
) -> dict[str, str]:
    """Return SN → key of `count` devices of the demo product, creating those that lack.

    `told` hears how many there are. A run that is broken off is continued by the next.
    """
    known = _load(directory)
    wanted = [f"DEMOSIM{number:09d}" for number in range(1, count + 1)]
    missing = [sn for sn in wanted if sn not in known]
    if missing:
        model = demo_product()["model"]
        try:
            for start in range(0, len(missing), _SAVE_EVERY):
                batch = missing[start : start + _SAVE_EVERY]
                await _create(api, model, batch, known)
                _save(directory, known)
                told(len(known))
        finally:
            _save(directory, known)
    return {sn: known[sn] for sn in wanted}


async def _create(api: OpenApi, model: str, sns: list[str], keys: dict[str, str]) -> None:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def create(sn: str) -> None:
        async with limit:
            device_id = await api.add_device(sn, f"Simulated {sn[-9:].lstrip('0')}", model)
            _, keys[sn] = await api.issue_credentials(device_id)

    await asyncio.gather(*(create(sn) for sn in sns))


def _load(directory: Path) -> dict[str, str]:
    path = directory / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise LauncherError(f"cannot read {path}: {error}") from error


def _save(directory: Path, keys: dict[str, str]) -> None:
    write_private(directory / FILE_NAME, msgspec.json.encode(keys))
