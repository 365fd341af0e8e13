"""Who a message goes to, and with which headers."""
