"""What a node tells about itself: plain counters that exporters pull."""
