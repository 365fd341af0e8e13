"""Event loops, clocks, threads and signals of a process. All of it is passed in; nothing is
global.
"""
