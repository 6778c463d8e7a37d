"""What the fork server for the embedded engine runs (tests/forked.py): the imports of its two processes."""

from importlib import import_module

for name in (
    "jinja2.sandbox",
    "torch",
    "specops.cli.app",
    "specops.cli.serve",
    "specops.edge.server",
    "specops.edge.server_engine",
    "specops.edge.verification_loop",
    "specops.engine.load",
    "specops.engine.models.offload",
    "specops.engine.parallel.process_group",
    "specops.engine.text",
    "specops.serve.engine_worker",
    "specops.serve.server",
):
    import_module(name)
