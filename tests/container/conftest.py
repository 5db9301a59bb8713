"""An engine and the image for these tests: built if need be, reused if it is there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from trainmark import image, image_build
from trainmark.engines import Engine, detect
from trainmark.errors import UserError

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.container)
            item.add_marker(pytest.mark.timeout(2400))  # the first one builds the image


@pytest.fixture(scope="session")
def engine() -> Engine:
    try:
        return detect("auto")
    except UserError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def built(engine: Engine) -> dict[str, Any]:
    """image.json of the CUDA 10.2 image; the first build takes minutes."""
    return image_build.build(image.Wanted(), ROOT / "build" / "image")


@pytest.fixture(scope="session")
def described(built: dict[str, Any]) -> dict[str, Any]:
    path = ROOT / "build" / "image" / built["hash"] / "image.json"
    return json.loads(path.read_text())
