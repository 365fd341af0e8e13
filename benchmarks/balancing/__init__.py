"""Parts of benchmarks/balancer.py: clusters made up, other algorithms, bounds, report and plot."""
