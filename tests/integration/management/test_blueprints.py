"""The source of blueprints: the built-in one, and no other."""

from libs.common.identity.functions import Function


async def test_the_source_is_the_built_in_one(management):
    """Also after it was set to what it is; who may only look does not set it."""
    admin = management.admin()
    source = {"current_source_type": "DEFAULT"}

    await admin.done("POST", "/blueprint-library-setting", {"source_type": "DEFAULT"})

    reader = management.user(7, Function.CREDENTIALS_VIEW)
    assert await reader.done("GET", "/blueprint-library-setting") == source
    await reader.refused(403, "POST", "/blueprint-library-setting", {"source_type": "DEFAULT"})


async def test_a_library_is_not_taken(management):
    """With a code that consoles have a text for; nothing is fetched."""
    body = {"source_type": "UPLOAD", "type": "ZIP", "url": "http://169.254.169.254/x.zip"}
    await management.admin().refused(
        400,
        "POST",
        "/blueprint-library-setting",
        body,
        code="blueprint_library_resources_fetch_failed",
        field="source_type",
    )
