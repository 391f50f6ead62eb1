"""Starts the process `device`: `python -m services.device`."""

from libs.common.http import run_service
from services.device.app import main

if __name__ == "__main__":
    run_service("device", main)
