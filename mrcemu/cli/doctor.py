"""`mrcemu doctor`: what this machine can and cannot do, with the fix for each failure."""

from __future__ import annotations

from mrcemu.cli.common import AsJson, command_app, print_json, print_table

app = command_app()


@app.command()
def doctor(as_json: AsJson = False) -> int:
    """Check the kernel (SRv6, NEXT-CSID, queues, BPF), tools, rights, CPUs and limits.

    Each feature is really tried in a scratch namespace. Exit code 3 if something required is missing.

    Example: sudo mrcemu doctor
    """
    from mrcemu.fabric.requirements import Level, examine  # noqa: PLC0415

    results = examine()
    fit = all(result.level is not Level.MISSING for result in results)
    if as_json:
        checks = [{"name": r.name, "level": r.level.value, "found": r.found, "fix": r.fix} for r in results]
        print_json({"fit": fit, "checks": checks})
    else:
        print_table(["check", "level", "found", "fix"], [(r.name, r.level.value, r.found, r.fix) for r in results])
        print("This machine can carry a fabric." if fit else "This machine cannot carry a fabric yet: see the fixes.")
    return 0 if fit else 3
