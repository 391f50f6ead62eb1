"""Run `workflow`: `python -m services.workflow`."""

from libs.common.http import run_service
from services.workflow.app import main

if __name__ == "__main__":
    run_service("workflow", main)
