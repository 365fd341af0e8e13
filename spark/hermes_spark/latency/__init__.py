"""How long messages took to their subscribers, and what hedging has cost."""
