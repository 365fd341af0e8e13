"""Minimal bodies of a topic and a subscription."""

from typing import Any

TOPIC: dict[str, Any] = {
    "name": "shop.orders",
    "description": "",
    "owner": {"source": "Plaintext", "id": "sales"},
    "contentType": "JSON",
    "retentionTime": {"duration": 1},
}
SUBSCRIPTION: dict[str, Any] = {
    "topicName": "shop.orders",
    "name": "billing",
    "endpoint": "http://host/",
    "description": "",
    "owner": {"source": "Plaintext", "id": "finance"},
}
