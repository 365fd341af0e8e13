"""Publishing goes on when the own datacentre does not: other datacentres, and the spool."""
