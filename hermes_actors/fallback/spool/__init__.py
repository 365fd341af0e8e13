"""The spool: messages that no log took in time, kept on this node's disk until a log takes them."""
