"""One node: the composition root, and the parts that it assembles."""

from hermes_actors.node.environment import NodeEnvironment, SenderOf
from hermes_actors.node.root import open_node
from hermes_actors.node.running import Node

__all__ = ["Node", "NodeEnvironment", "SenderOf", "open_node"]
