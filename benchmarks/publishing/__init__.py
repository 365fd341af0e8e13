"""The parts of benchmarks/publish.py: load, servers, floors and what is shown of them."""
