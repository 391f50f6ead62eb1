"""`python -m tests.documents` writes the OpenAPI documents from which clients are generated.

It needs no running platform. Tests compare the documents with those that a gateway serves.
"""

import json
from pathlib import Path
from typing import Any

from libs.common.http.document import complete_document
from libs.common.identity import generate_keys
from services.gateway.docs.document import ApiPart, extract_api, merge_documents
from services.gateway.routes import ROUTES
from tests import apps

ROOT = Path(__file__).parents[1]
FILES = {
    ApiPart.DEVICE: ROOT / "clients/python/openapi.json",
    ApiPart.MANAGEMENT: ROOT / "console/openapi.json",
}


def main() -> None:
    """Write the documents of both APIs."""
    public_key = generate_keys()[1]
    whole = merge_documents(
        {name: _of(build(public_key)) for name, build in apps.SERVICES.items()}, ROUTES
    )
    for api, path in FILES.items():
        text = json.dumps(extract_api(whole, api), indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n")


def _of(app: Any) -> dict[str, Any]:
    schema = app.openapi_schema.to_schema()
    complete_document(schema, app)
    return json.loads(json.dumps(schema, default=str))


if __name__ == "__main__":
    main()
