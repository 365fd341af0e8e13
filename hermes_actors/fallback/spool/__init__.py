"""What no log took in time: kept on this node's disk, and sent when a log takes it again."""
