"""The parts of benchmarks/publish.py: load, servers, floors, report and plot."""
