"""HTTP servers for publishing, management and endpoints: connections, and the routing of their
requests.
"""
