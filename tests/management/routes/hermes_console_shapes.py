"""The fields that Hermes' console reads, by its models: of each the type, or a tuple of types. A
list has the shape of its items, of which there must be one.
"""

NUMBER = (int, float)
OWNER = {"source": str, "id": str}
PLACE = [{"value": str, "label": str}]
RETENTION = {"duration": int, "retentionUnit": str}
COPIES = [{"datacenter": str}]

CONSOLE = {
    "console": {
        "title": str,
        "contactLink": str,
        "environmentName": str,
        "criticalEnvironment": bool,
        "knownEnvironments": list,
    },
    "dashboard": {"metrics": str, "docs": str},
    "metrics": {"fetchingDashboardUrlEnabled": bool},
    "auth": {
        "oauth": {
            "enabled": bool,
            "url": str,
            "authorizationEndpoint": str,
            "tokenEndpoint": str,
            "clientId": str,
            "scope": str,
        }
    },
    "owner": {"sources": [{"name": str, "placeholder": str}]},
    "topic": {
        "messagePreviewEnabled": bool,
        "offlineClientsEnabled": bool,
        "defaults": {
            "ack": str,
            "contentType": str,
            "retentionTime": RETENTION,
            "offlineStorage": {"enabled": bool, "retentionTime": RETENTION},
        },
        "contentTypes": PLACE,
        "readOnlyModeEnabled": bool,
        "retentionUnits": PLACE,
        "offlineRetransmission": {
            "enabled": bool,
            "description": str,
            "fromViewDocsUrl": str,
            "globalTaskQueueUrl": str,
            "monitoringDocsUrl": str,
        },
    },
    "subscription": {
        "endpointAddressResolverMetadata": dict,
        "requestTimeoutWarningThreshold": int,
        "defaults": {
            "subscriptionPolicy": {"messageTtl": int, "requestTimeout": int},
            "deliveryType": str,
        },
        "deliveryTypes": PLACE,
    },
    "consistency": {"maxGroupBatchSize": int},
    "group": {"nonAdminCreationEnabled": bool},
    "costs": {
        "enabled": bool,
        "globalDetailsUrl": str,
        "topicIframeUrl": str,
        "topicDetailsUrl": str,
        "subscriptionIframeUrl": str,
        "subscriptionDetailsUrl": str,
    },
}
TOPIC_FIELDS = {
    "name": str,
    "description": str,
    "owner": OWNER,
    "retentionTime": RETENTION,
    "jsonToAvroDryRun": bool,
    "ack": str,
    "trackingEnabled": bool,
    "migratedFromJsonType": bool,
    "contentType": str,
    "maxMessageSize": int,
    "auth": {"enabled": bool, "unauthenticatedAccessEnabled": bool},
    "subscribingRestricted": bool,
    "offlineStorage": {"enabled": bool, "retentionTime": {"duration": int, "infinite": bool}},
    "createdAt": NUMBER,
    "modifiedAt": NUMBER,
    "fallbackToRemoteDatacenterEnabled": bool,
}
SUBSCRIPTION_FIELDS = {
    "topicName": str,
    "name": str,
    "endpoint": str,
    "state": str,
    "description": str,
    "subscriptionPolicy": {
        "rate": int,
        "messageTtl": int,
        "messageBackoff": int,
        "requestTimeout": int,
        "sendingDelay": int,
        "backoffMultiplier": NUMBER,
        "backoffMaxIntervalInSec": int,
        "retryClientErrors": bool,
    },
    "trackingEnabled": bool,
    "trackingMode": str,
    "owner": OWNER,
    "monitoringDetails": {"severity": str, "reaction": str},
    "contentType": str,
    "deliveryType": str,
    "filters": list,
    "mode": str,
    "headers": list,
    "endpointAddressResolverMetadata": dict,
    "http2Enabled": bool,
    "subscriptionIdentityHeadersEnabled": bool,
    "autoDeleteWithTopicEnabled": bool,
    "createdAt": NUMBER,
    "modifiedAt": NUMBER,
}
TOPIC_METRICS = {
    "published": int,
    "volume": int,
    "rate": str,
    "deliveryRate": str,
    "subscriptions": int,
    "throughput": str,
}
SUBSCRIPTION_METRICS = {
    **dict.fromkeys(("delivered", "discarded", "volume"), int),
    **dict.fromkeys(("timeouts", "otherErrors", "codes2xx", "codes4xx", "codes5xx"), str),
    **dict.fromkeys(("retries", "lag", "rate", "throughput", "batchRate"), str),
}
STATS = {
    "topicStats": dict.fromkeys(
        ("topicCount", "ackAllTopicCount", "trackingEnabledTopicCount", "avroTopicCount"), int
    ),
    "subscriptionStats": dict.fromkeys(
        (
            "subscriptionCount",
            "trackingEnabledSubscriptionCount",
            "avroSubscriptionCount",
        ),
        int,
    ),
}
TRACE = {
    "timestamp": int,
    "subscription": str,
    "topicName": str,
    "status": str,
    "reason": str,
    "message": str,
    "partition": int,
    "offset": int,
    "cluster": str,
}
GROUP = {
    "clusterName": str,
    "groupId": str,
    "state": str,
    "empty": bool,
    "stable": bool,
    "members": [
        {
            "consumerId": str,
            "clientId": str,
            "host": str,
            "partitions": [
                {
                    "partition": int,
                    "topic": str,
                    "currentOffset": int,
                    "logEndOffset": int,
                    "lag": int,
                    "offsetMetadata": str,
                    "contentType": str,
                }
            ],
        }
    ],
}
DIFFERENCES = [
    {
        "name": str,
        "inconsistentMetadata": COPIES,
        "inconsistentTopics": [
            {
                "name": str,
                "inconsistentMetadata": COPIES,
                "inconsistentSubscriptions": [{"name": str, "inconsistentMetadata": COPIES}],
            }
        ],
    }
]
FOUND = {
    "totalCount": int,
    "results": [
        {"type": str, "name": str, "topic": {"groupName": str, "owner": {"id": str}}},
    ],
}
