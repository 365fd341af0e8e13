"""The status of nodes: a record from each node once a second, and what management derives from
them.
"""
