"""Run `auth`: `python -m services.auth`."""

from libs.common.http import run_service
from services.auth.app import main

if __name__ == "__main__":
    run_service("auth", main)
