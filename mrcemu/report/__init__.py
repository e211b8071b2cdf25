"""The report of a results folder: one self-contained HTML page and PNG plots, from `result.json` and `events.jsonl`.

Read `build.py` first. Refuses to compute any figure of a run: what is not in the folder is not in the report.
"""

from mrcemu.report.build import build_report

__all__ = ["build_report"]
