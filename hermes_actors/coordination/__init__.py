"""Who consumes in a datacentre, who leads, who owns what: one log, which all fold alike."""
