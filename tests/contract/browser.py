"""An existing console, letter by letter."""

from typing import Any

import httpx

from tests.contract.console import Console

FORM = {"Content-Type": "application/x-www-form-urlencoded;charset=utf-8"}
JSON = {"Content-Type": "application/json"}


class Browser:
    """Sends what an existing console sends, below `/api/v1`, and reads what it reads."""

    def __init__(self, base_url: str) -> None:
        self.http = httpx.AsyncClient(base_url=f"{base_url}/api/v1", timeout=30, verify=False)

    async def sign_in(self, console: Console) -> "Browser":
        """Send the form of log-in, `@` escaped."""
        text = (
            f"grant_type=password&username={console.email.replace('@', '%40')}"
            f"&password={console.password}"
            f"&client_id={console.client_id}&client_secret={console.client_secret}"
        )
        answer = await self.http.post("/oauth2/token", content=text, headers=FORM)
        await self.take(answer.json())
        return self

    async def take(self, body: dict[str, Any]) -> None:
        """Keep the tokens, which it reads inside the envelope."""
        assert body["status"] == "Success", body
        assert "error_code" not in body
        self.http.headers["Authorization"] = f"Bearer {body['data']['access_token']}"
        self.refresh_token = body["data"]["refresh_token"]

    async def get(self, path: str) -> Any:
        """`data` of a GET."""
        return self._data(await self.http.get(path))

    async def post(self, path: str, text: str) -> Any:
        """`data` of a POST."""
        return self._data(await self.http.post(path, content=text, headers=JSON))

    async def put(self, path: str, text: str) -> Any:
        """`data` of a PUT."""
        return self._data(await self.http.put(path, content=text, headers=JSON))

    async def delete(self, path: str) -> Any:
        """`data` of a DELETE, which comes with an empty object."""
        return self._data(await self.http.request("DELETE", path, content="{}", headers=JSON))

    @staticmethod
    def _data(answer: httpx.Response) -> Any:
        body = answer.json()
        assert (answer.status_code, body["status"]) == (200, "Success"), body
        assert "error_code" not in body
        assert body["request_id"]
        return body.get("data")
