"""Bodies of token requests in the documentation: the handlers read them themselves."""

from collections.abc import Mapping

from litestar.openapi.spec import Example, OpenAPIMediaType, OpenAPIType, RequestBody, Schema

from services.auth.tokens.form import FORM_TYPES, JSON_TYPE


def grant(title: str, needed: Mapping[str, str], **optional: str) -> Schema:
    """The fields of one grant, each with its description."""
    return Schema(
        type=OpenAPIType.OBJECT,
        title=title,
        required=["grant_type", *needed],
        properties={
            "grant_type": Schema(type=OpenAPIType.STRING, const=title),
            **{
                name: Schema(type=OpenAPIType.STRING, pattern=r"\S", description=description)
                for name, description in {**needed, **optional}.items()
            },
        },
    )


def request_body(*grants: Schema, **example: str) -> RequestBody:
    """A form or a JSON object with one of `grants`; `example` has the fields of the first."""
    media = OpenAPIMediaType(
        schema=Schema(one_of=list(grants)),
        examples={example["grant_type"]: Example(value=example)},
    )
    return RequestBody(required=True, content={FORM_TYPES[0]: media, JSON_TYPE: media})
