"""Reads a dashboard with the types that Grafana makes from its schema, and writes what they keep of
it, as JSON.

    dashboard.py FILE

Run with the Python of a venv that has grafana-foundation-sdk. A field of a wrong type is an
exception; one that the schema does not have is left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def main() -> int:
    """The exit code."""
    plugins.register_default_plugins()
    board = Dashboard.from_json(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print(JSONEncoder().encode(board))
    return 0


if __name__ == "__main__":
    sys.exit(main())
