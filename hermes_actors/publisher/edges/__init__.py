"""HTTP for publishing, management and endpoints: connections, and what their requests are for."""
