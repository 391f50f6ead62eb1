"""Conditions of the management API's searches, on a real MongoDB."""

import pytest

from libs.common.store.mongo import Mongo, build_text_condition


@pytest.mark.parametrize("text", ["a\x00b", "\x00", "a.b", "(", "\\", "A\\E", "Ü", "a\nb", "$x"])
async def test_a_keyword_is_found_as_it_is_written(mongo: Mongo, text: str):
    """No character of it means anything to MongoDB, NUL included."""
    names = mongo.database["names"]
    await names.insert_many([{"name": f"x{text.lower()}y"}, {"name": "other"}])
    found = await names.find({"name": build_text_condition(text)}, {"_id": 0}).to_list(None)
    assert found == [{"name": f"x{text.lower()}y"}]
