"""Entry point of `management`: `python -m services.management`."""

from libs.common.http import run_service
from services.management.app import main

if __name__ == "__main__":
    run_service("management", main)
