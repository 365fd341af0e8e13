"""Parts of benchmarks/balancer.py: synthetic clusters, other algorithms, bounds, report
and plot.
"""
